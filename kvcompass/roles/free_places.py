"""When a unit lets the place (table, slot) of a worker that has left be given to another.

A field of a view names whoever the reader's plan has at that place. So no edge may read one under a plan
with the new worker while it may still be the old one's, nor the other way round. Say that no worker is at the
place in version `left`, the first that the unit runs without one. A version `next` that gives it again is
taken when

1. the table has no field of the place left, since sequence `cleared_at`;
2. everybody who follows the unit has acknowledged that sequence, in the unit's epoch;
3. `next >= left + 2`: the place lay empty for two whole versions.

**No view under `next` has the old worker's field.** A unit that takes `next` has none (1), and one that has
not, and is not rid of it yet, refuses whoever subscribes with a newer version (`MaintenanceUnit.subscribe`);
an edge that passes a shard on refuses those whose version is newer than its own. An edge that takes `next`
asks every shard anew (`ViewRelay.places_given_again`), so that nothing of an older agreement reaches it. What
its view had before is rid of the field if it followed (2). If it did not, it does not know whose a field is
that it has there, and forgets the shard until a snapshot comes. So who has left the unit need not be counted:
whenever it comes back it passes through one of these; and (2) spares all who follow the forgetting. Nobody is
told the past: from `next` on a unit's log and snapshots begin no earlier than `cleared_at`, and an edge's
where it took `next` (`SubscriberDesk.forget_up_to`).

**No edge that has the old worker in its plan gets the new one's field.** Only a unit that runs `next` or
later has any. Those who follow it claimed `next - 1` or later, those who follow them `next - 2 >= left` or
later: on every stream the claim is at most one version behind the server, which ends those that fall further
behind when it takes a plan (`SubscriberDesk.apply_plan`). Whoever follows an edge serves nobody, so there is
no third hop.

A unit that restarts knows its plan only. Its table has no field of a worker that is not in the plan, whatever
it was restored from; a place that was ever given and that nobody has counts as left in the version that it
starts with, and its followers' views are rid of it once they acknowledge something of its epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kvcompass.plan.model import Plan
from kvcompass.plan.places import Place, vacant_places

VERSIONS_EMPTY: Final = 2
"""Streams from unit to edge and from edge to edge are two: each may be one version apart."""


class PlaceState(StrEnum):
    """What is still to happen before a place is given again. A closed set: it is a metric's label."""

    CLEARING = "clearing"
    """The table is being rid of the worker that left."""
    ACKNOWLEDGING = "acknowledging"
    """Some who follow the unit have not acknowledged that."""
    RESTING = "resting"
    """Only later versions of the plan may give it: one that may be two behind could know the old worker."""
    FREE = "free"
    """The next version may give it."""


@dataclass(frozen=True, slots=True)
class VacantPlace:
    """A place that nobody has, and how it stands."""

    table: int
    slot: int
    state: PlaceState
    held_up_by: tuple[str, ...]
    """Ids of those that have not acknowledged."""
    from_version: int
    """Of the plan: the first that may give it."""


@dataclass(slots=True)
class _Left:
    version: int
    cleared_at: int | None = None


class FreePlaces:
    """Places that were given and that no worker of a unit's plan has: no more than tables have slots."""

    def __init__(self, plan: Plan) -> None:
        """A unit starts with this plan, and with no field of a worker that it does not have."""
        self._left = {place: _Left(plan.plan_version) for place in vacant_places(plan)}

    def leave(self, place: Place, plan_version: int) -> None:
        """Its worker is not in this version any more, and its fields are being cleared."""
        self._left[place] = _Left(plan_version)

    def give(self, place: Place) -> int | None:
        """A worker has it from here on. Returns since which sequence no field of another is there.

        None: nobody can have had it before.
        """
        left = self._left.pop(place, None)
        return None if left is None else left.cleared_at or 0

    @property
    def last_cleared_at(self) -> int:
        """Since this sequence the table has had no field at any of the places that are cleared."""
        return max((left.cleared_at or 0 for left in self._left.values()), default=0)

    def note_cleared(self, is_clear: Callable[[int, int], bool], sequence: int) -> None:
        """Looks which places have no field left. `sequence`: of the newest patch group, all edits done.

        At the least 1: who has acknowledged 0 may have nothing of this epoch.
        """
        for (table, slot), left in self._left.items():
            if left.cleared_at is None and is_clear(table, slot):
                left.cleared_at = max(1, sequence)

    @property
    def all_cleared(self) -> bool:
        """The table has no field of anybody who left."""
        return all(left.cleared_at is not None for left in self._left.values())

    def standing(self, plan_version: int, acknowledged: Mapping[str, int]) -> list[VacantPlace]:
        """How every place stands for the version after `plan_version`.

        `acknowledged`: by whoever follows the unit, the newest sequence that all its streams acknowledge.
        """
        return [
            self._standing(place, left, plan_version + 1, acknowledged)
            for place, left in sorted(self._left.items())
        ]

    def _standing(
        self, place: Place, left: _Left, next_version: int, acknowledged: Mapping[str, int]
    ) -> VacantPlace:
        behind: tuple[str, ...] = ()
        earliest = max(next_version, left.version + VERSIONS_EMPTY)
        if left.cleared_at is None:
            state = PlaceState.CLEARING
        else:
            behind = tuple(
                sorted(who for who, sequence in acknowledged.items() if sequence < left.cleared_at)
            )
            state = PlaceState.ACKNOWLEDGING if behind else PlaceState.FREE
        if state is PlaceState.FREE and earliest > next_version:
            state = PlaceState.RESTING
        return VacantPlace(*place, state, behind, earliest)


def why_not(place: VacantPlace) -> str:
    """Why the next version may not give a place, and what to do; empty when it may."""
    where = f"table {place.table}, slot {place.slot}"
    other = "or delete its table and slot and run `kvcompass plan assign` without --reuse"
    match place.state:
        case PlaceState.FREE:
            return ""
        case PlaceState.CLEARING:
            return f"{where} is still being cleared of the worker that had it; try again in a moment, {other}"
        case PlaceState.ACKNOWLEDGING:
            who = ", ".join(place.held_up_by)
            return (
                f"{where}: {who} did not acknowledge that the worker that had it is cleared; try again when"
                f" they have caught up or ended, {other}"
            )
        case PlaceState.RESTING:
            return (
                f"{where} was left too recently: plan version {place.from_version} is the first that may give"
                f" it; apply this one without the worker first, {other}"
            )
