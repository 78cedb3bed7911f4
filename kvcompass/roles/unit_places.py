"""Places of a unit's tables that workers leave and others are given: the rules are in `FreePlaces`."""

from collections.abc import Mapping

from kvcompass.errors import KVCompassError
from kvcompass.plan.model import Plan, Worker
from kvcompass.roles.free_places import FreePlaces, VacantPlace, why_not
from kvcompass.roles.handshake import PLAN_FIELD
from kvcompass.roles.messages import Refusal, SubscribeRequest
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.unit_plan import UnitPlan
from kvcompass.roles.worker_source import WorkerSource


class UnitPlaces:
    """Owns which places are free, and since when; looks into the tables, and has the log forget the past."""

    def __init__(
        self, plan: UnitPlan, tables: ShardWriter, desk: UnitDesk, sources: Mapping[str, WorkerSource]
    ) -> None:
        """`sources` are the unit's: those of the workers that have places."""
        self._plan = plan
        self._tables = tables
        self._desk = desk
        self._sources = sources
        self._free = FreePlaces(plan.now)
        self._tables_open = plan.now.tables
        self._given_again: set[str] = set()
        self.note_cleared()

    def vacant(self) -> list[VacantPlace]:
        """Places that were given and that nobody has, and whether the next version may give them again."""
        return self._free.standing(self._plan.version, self._desk.acknowledged_by())

    def check(self, plan: Plan) -> None:
        """Errors: KVCompassError when the next version gives a place that is not free, and why."""
        standing = {(each.table, each.slot): each for each in self.vacant()}
        for worker in plan.workers:
            place = standing.get((worker.table, worker.slot))
            reason = why_not(place) if place is not None else ""
            if reason:
                raise KVCompassError(
                    f"{worker.id} cannot be there yet: {reason}", field=f"worker.{worker.id}.slot"
                )

    def open_tables(self, tables: int) -> None:
        """There are so many tables from here on, unless there were more."""
        self._desk.tables_changed(self._tables.open_tables(tables))
        self._tables_open = max(self._tables_open, tables)

    def give(self, worker: Worker) -> None:
        """A worker that the plan adds has its place from here on."""
        cleared_at = self._free.give((worker.table, worker.slot))
        if cleared_at is not None:
            self._given_again.add(worker.id)
            self._desk.forget_up_to(cleared_at)

    def must_wait(self, worker_id: str) -> bool:
        """Others may have had the worker's place: it is taken in once all edges go by the plan."""
        return worker_id in self._given_again

    def leave(self, worker: Worker) -> None:
        """A worker is not in the plan: its fields are removed part by part."""
        self._tables.clear_worker(worker.table, worker.slot)
        self._free.leave((worker.table, worker.slot), self._plan.version)

    def settle(self) -> None:
        """All edges go by the plan."""
        self._given_again.clear()
        self.note_cleared()

    def note_cleared(self) -> None:
        """Looks which places have no field left, all edits done."""
        if not self._free.all_cleared:
            self._free.note_cleared(self._is_clear, self._desk.sequence)

    def make_ready_for(self, request: SubscribeRequest) -> Refusal | None:
        """Sees that one whose plan is newer is told nothing of workers that it may not know.

        The refusal while the tables have something of them.
        """
        if request.handshake.plan_version <= self._plan.version:
            return None
        if not self._free.all_cleared or not self._sources.keys() <= self._plan.worker_ids():
            return _still_clearing(request, self._plan.version)
        self._desk.forget_up_to(self._free.last_cleared_at)
        return None

    def _is_clear(self, table: int, slot: int) -> bool:
        if table >= self._tables_open:
            return True
        return not self._tables.is_clearing(table, slot) and self._tables.held(table, slot) == (0, 0)


def _still_clearing(request: SubscribeRequest, plan_version: int) -> Refusal:
    return Refusal(
        PLAN_FIELD,
        f"{request.handshake.plan_version} is newer than {plan_version}, and workers that have left are still"
        " being cleared here; try again",
    )
