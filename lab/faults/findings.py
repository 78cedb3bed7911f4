"""What a case found: one row of `out/faults.json`."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Bound:
    """A promise in seconds, and what was measured. `took_s` is None when it did not happen at all."""

    what: str
    limit_s: float
    took_s: float | None

    @property
    def holds(self) -> bool:
        """Whether the promise was kept."""
        return self.took_s is not None and self.took_s <= self.limit_s


@dataclasses.dataclass(slots=True)
class Findings:
    """Seconds are None where they do not apply, or did not end."""

    case: str
    victims: list[str] = dataclasses.field(default_factory=list)
    """Processes that were killed or stopped."""
    recovered_in_s: float | None = None
    """From the end of the fault, or the start of the process that was killed, until every view was true."""
    boot_s: float | None = None
    """Of that: until the process that was killed answered anything; a unit: until it listened."""
    wrong_claims: int = 0
    """As edges counted, from the start of the fault to the recovery."""
    failed_requests: int = 0
    """Not answered although nothing of the answer had come, at an edge that was not killed."""
    blind_decisions: int = 0
    requests: int = 0
    """Under way at some time between the start of the fault and the recovery."""
    cut_answers: int = 0
    """Ended early after they had begun."""
    lost_at_killed_edges: int = 0
    at_another_endpoint: int = 0
    """Sent to another endpoint than the first of their users."""
    longest_request_s: float = 0.0
    learned_in_s: float | None = None
    """After the recovery: from a prompt's answer until every edge knew who holds it."""
    patches_lost: int | None = None
    """Patch messages that units lost on purpose."""
    bounds: list[Bound] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    """What went wrong beside bounds; with failures, the first few."""
    entries: int = 0
    """Keys in all tables at the end."""
    busy: float = 0.0
    """Processes that wanted to run in the last minute, over the cores of this machine. Above 1 it was too
    slow for what it was asked to do."""

    @property
    def ok(self) -> bool:
        """Every bound held, no request failed that must not, and nothing else went wrong."""
        return (
            all(bound.holds for bound in self.bounds)
            and not self.failed_requests
            and not self.problems
            and self.recovered_in_s is not None
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values, `ok` among them."""
        values = dataclasses.asdict(self)
        values["bounds"] = [
            _rounded(dataclasses.asdict(bound)) | {"holds": bound.holds} for bound in self.bounds
        ]
        return {**_rounded(values), "ok": self.ok}


def _rounded(values: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 2) if isinstance(value, float) else value for name, value in values.items()}
