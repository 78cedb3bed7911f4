"""What edges have counted altogether, those that were killed meanwhile included."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Totals:
    """Of all edges, up to when they were last asked."""

    wrong_claims: int = 0
    blind_decisions: int = 0

    def __add__(self, more: "Totals") -> "Totals":
        return Totals(self.wrong_claims + more.wrong_claims, self.blind_decisions + more.blind_decisions)

    def __sub__(self, earlier: "Totals") -> "Totals":
        return Totals(
            self.wrong_claims - earlier.wrong_claims, self.blind_decisions - earlier.blind_decisions
        )


class EdgeCounts:
    """Adds up counters that begin anew with each process."""

    def __init__(self) -> None:
        self._last: dict[str, Totals] = {}
        self.totals = Totals()

    def take(self, edge: str, told: Mapping[str, Any]) -> None:
        """An edge's state. What an edge counted between its last state and its death is not known."""
        now = Totals(told["wrong_claims"], told["blind_decisions"])
        before = self._last.get(edge, Totals())
        if now.wrong_claims < before.wrong_claims or now.blind_decisions < before.blind_decisions:
            before = Totals()
        self._last[edge] = now
        self.totals += now - before
