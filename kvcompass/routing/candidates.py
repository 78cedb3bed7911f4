"""Who may take a request: the best non-empty class of standing, within a sharing group and a reach."""

from dataclasses import dataclass

from kvcompass.fleet.view import FleetView, Standing
from kvcompass.routing.decision import NoWorker, NoWorkerReason
from kvcompass.score import Standings

_CONSIDERED = (Standing.KNOWN, Standing.UNKNOWN, Standing.SUSPECTED)


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The workers a request may go to, all of one standing."""

    standing: Standing
    standings: Standings
    count: int
    """Of candidates."""


class CandidateSets:
    """Candidate sets of one fleet view; they change only with standing, so they are kept until it does.

    `own_region` narrows the reach to the origin region.
    """

    def __init__(self, fleet: FleetView, *, own_region: bool) -> None:
        self._fleet = fleet
        self._own_region = own_region
        self._version = -1
        self._by_group: dict[str, CandidateSet | NoWorker] = {}

    def of(self, sharing_group: str, exclude: frozenset[int]) -> CandidateSet | NoWorker:
        """Candidates of a group, less those excluded. The fleet must be refreshed."""
        fleet = self._fleet
        if fleet.standing_version != self._version:
            self._by_group.clear()
            self._version = fleet.standing_version
        if exclude:
            return self._build(sharing_group, exclude)
        kept = self._by_group.get(sharing_group)
        if kept is None:
            kept = self._build(sharing_group, exclude)
            if sharing_group in fleet.in_group:
                self._by_group[sharing_group] = kept
        return kept

    def _build(self, sharing_group: str, exclude: frozenset[int]) -> CandidateSet | NoWorker:
        fleet = self._fleet
        members = fleet.in_group.get(sharing_group)
        if members is not None and self._own_region:
            members = members & fleet.is_local
        if members is None or not members.any():
            where = " in this region" if self._own_region else ""
            return NoWorker(
                NoWorkerReason.UNKNOWN_GROUP, f"no worker serves sharing group {sharing_group!r}{where}"
            )
        live = members & (fleet.standing != Standing.OUT)
        if not live.any():
            return NoWorker(
                NoWorkerReason.NONE_LIVE, "every worker that could serve this is draining or down"
            )
        untried = live.copy()
        untried[list(exclude)] = False
        for standing in _CONSIDERED:
            mask = untried & (fleet.standing == standing)
            count = int(mask.sum())
            if count:
                return CandidateSet(
                    standing, Standings(mask, members & ~mask, fleet.local_in_group[sharing_group]), count
                )
        return NoWorker(NoWorkerReason.ALL_TRIED, "every live worker has already failed this request")
