"""The maintenance unit of one shard (paper 3.2): agents report what workers hold, edges follow the table.

The unit is the only writer of its shard. Each worker is the source of truth for its own fields, so a unit
that starts empty is refilled by agents; until it is, it gives out no snapshot: its emptiness would be false.
One that starts with its own snapshot is corrected by them. Here is the agents' side: streams, leases,
reports. The edges' side is `UnitDesk`.
"""

from collections.abc import Mapping
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import KVCompassError
from kvcompass.keys.shards import keys_of
from kvcompass.plan.model import Plan, Worker
from kvcompass.roles.free_places import FreePlaces, VacantPlace, why_not
from kvcompass.roles.handshake import PLAN_FIELD, check_handshake, superseded
from kvcompass.roles.messages import (
    MESSAGE_KEYS_MOST,
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    Refusal,
    Renewal,
    ReportRequest,
    SubscribeRequest,
    UnitToAgent,
    UnitToEdge,
    Welcome,
)
from kvcompass.roles.restored_from import RestoredFrom
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.unit_capture import UnitCapture
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.unit_snapshot_bytes import SavedWorker, SnapshotHead
from kvcompass.roles.worker_source import AgentSession, PartialReport, Registered, WorkerSource

EDIT_SLICE: Final = 256
"""Keys edited at once; bounds a log entry, so that a view applies it without holding requests up."""
WORK_SLICES: Final = 8
"""Slices edited in one call: a few milliseconds, whatever the size of a report."""
_FEW_KEYS: Final = 16
BUSY_KEYS: Final = 32
"""Keys edited in one call while a table is growing or is made ready for it: each does a part of that."""


class MaintenanceUnit:
    """State machine of one shard's writer. Owns its tables; times are the caller's monotonic microseconds."""

    def __init__(
        self,
        plan: Plan,
        unit_id: str,
        *,
        epoch: int,
        layout: Mapping[str, str],
        tables: ShardWriter,
        now_us: int,
        bounds: UnitBounds | None = None,
        restored: RestoredFrom | None = None,
    ) -> None:
        """`layout`: `layout_fields(plan, digests)`. `epoch`: new at each start, not 0.

        `tables`: empty, or as they were `restored` (`kvcompass.roles.unit_snapshot`).
        """
        assert epoch > 0
        unit = next(unit for unit in plan.units if unit.id == unit_id)
        self.id = unit_id
        self.shard = unit.shard
        self.epoch = epoch
        self.counters = UnitCounters()
        self.bounds = bounds or UnitBounds()
        self._plan = plan
        self._layout = layout
        self._tables = tables
        self._lease_us = plan.routing.lease_ms * 1_000
        self._keys = keys_of(unit.shard, plan.shards)
        self._worker_keys_most = plan.worker_shard_entries_max
        self._sources = {worker.id: WorkerSource(worker) for worker in plan.workers}
        self._desk = UnitDesk(
            tables,
            epoch=epoch,
            layout=layout,
            plan_version=plan.plan_version,
            bounds=self.bounds,
            counters=self.counters,
        )
        self._desk.unsettled = restored is not None
        self._places = FreePlaces(plan)
        self._tables_open = plan.tables
        self._given_again: set[str] = set()
        """Workers at places that others may have had: taken in once all edges go by the plan."""
        self._started_us = now_us
        self._settled = False
        self._draining = False
        self._restored = restored
        self._capture: UnitCapture | None = None
        for worker_id in restored.workers if restored else ():
            self._sources[worker_id].lease_until_us = now_us + self.bounds.settle_leases * self._lease_us
        self._note_cleared()

    # --- what it is now ---------------------------------------------------------------------------

    @property
    def sequence(self) -> int:
        """Number of the newest patch group."""
        return self._desk.sequence

    @property
    def entries(self) -> int:
        """Keys in the table."""
        return self._tables.entries

    @property
    def digest(self) -> int:
        """Of the tables now: what a view has that has applied everything up to `sequence`."""
        return self._tables.digest()

    @property
    def is_busy(self) -> bool:
        """A table grows, shrinks or is cleared of a worker."""
        return self._tables.is_busy

    @property
    def settled(self) -> bool:
        """The table may be served to all: every worker has reported in full, or has had its chance."""
        return self._settled

    @property
    def restored(self) -> RestoredFrom | None:
        """The snapshot that the unit began with; None when it began empty."""
        return self._restored

    def awaited_workers(self) -> list[str]:
        """Workers whose fields may not be what they hold: not yet connected, or asked for a report."""
        return [worker_id for worker_id, source in self._sources.items() if source.awaited]

    def live_workers(self) -> list[str]:
        """Workers with a lease."""
        return [worker_id for worker_id, source in self._sources.items() if source.lease_until_us is not None]

    def registered(self, now_us: int) -> dict[str, Registered]:
        """How each worker stands."""
        return {worker_id: source.registered(now_us) for worker_id, source in self._sources.items()}

    def held(self) -> dict[str, tuple[int, int]]:
        """By worker, how many keys the table has for it and their `holdings_digest`. Cheap."""
        return {
            worker_id: self._tables.held(source.worker.table, source.worker.slot)
            for worker_id, source in self._sources.items()
        }

    def subscriber_lags(self) -> dict[str, int]:
        """Patch groups that each subscriber has not acknowledged."""
        return self._desk.lags()

    def holdings(self, worker_id: str) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Keys and tiers that the table has for a worker. Scans the worker's table: for tools and tests."""
        worker = self._sources[worker_id].worker
        return self._tables.holdings(worker.table, worker.slot)

    # --- the plan ---------------------------------------------------------------------------------

    @property
    def plan_version(self) -> int:
        """Of the plan it goes by."""
        return self._plan.plan_version

    def vacant_places(self) -> list[VacantPlace]:
        """Places that were given and that nobody has, and whether the next version may give them again."""
        return self._places.standing(self.plan_version, self._desk.acknowledged_by())

    def check_plan(self, plan: Plan) -> None:
        """Errors: KVCompassError when the next version gives a place that is not free, and why."""
        standing = {(each.table, each.slot): each for each in self.vacant_places()}
        for worker in plan.workers:
            place = standing.get((worker.table, worker.slot))
            reason = why_not(place) if place is not None else ""
            if reason:
                raise KVCompassError(f"{worker.id} cannot be there yet: {reason}", field=_slot_of(worker))

    def apply_plan(self, plan: Plan) -> None:
        """Goes by the next version of the plan, which `kvcompass.plan.change` allows to follow this one.

        Until `settle_plan` workers of both are known, and the wider of two bounds holds.
        """
        self._plan = plan
        self._lease_us = max(self._lease_us, plan.routing.lease_ms * 1_000)
        self._worker_keys_most = max(self._worker_keys_most, plan.worker_shard_entries_max)
        self._desk.tables_changed(self._tables.open_tables(plan.tables))
        self._tables_open = max(self._tables_open, plan.tables)
        self._desk.apply_plan(plan.plan_version)
        for worker in plan.workers:
            source = self._sources.get(worker.id)
            if source is None:
                self._sources[worker.id] = WorkerSource(worker)
                cleared_at = self._places.give((worker.table, worker.slot))
                if cleared_at is not None:
                    self._given_again.add(worker.id)
                    self._desk.forget_up_to(cleared_at)
            else:
                source.worker = worker

    def settle_plan(self) -> None:
        """Forgets what only the version before had: a worker that has left is cleared in every view."""
        self._lease_us = self._plan.routing.lease_ms * 1_000
        self._worker_keys_most = self._plan.worker_shard_entries_max
        planned = {worker.id for worker in self._plan.workers}
        for worker_id in [worker_id for worker_id in self._sources if worker_id not in planned]:
            source = self._sources.pop(worker_id)
            self._drop_report(source)
            self._tables.clear_worker(source.worker.table, source.worker.slot)
            self._places.leave((source.worker.table, source.worker.slot), self.plan_version)
        self._given_again.clear()
        self._note_cleared()

    # --- worker agents ----------------------------------------------------------------------------

    def agent_connected(self, hello: AgentHello, now_us: int) -> tuple[AgentSession, Welcome] | Refusal:
        """Opens a Report stream; a stream the worker had before is replaced.

        A first hello gives the worker one lease, in which to report and renew; a later one renews nothing.
        """
        refusal = check_handshake(hello.handshake, self._layout, self._plan.plan_version)
        source = self._sources.get(hello.worker_id)
        if refusal is None and source is None:
            refusal = self._not_planned(hello.worker_id)
        elif refusal is None and hello.worker_id in self._given_again:
            refusal = _not_yet(hello.worker_id)
        elif refusal is None and hello.holdings.holdings > self._worker_keys_most:
            refusal = self._too_many(hello.holdings.holdings)
        elif refusal is None and source is not None and self._goes_back(source, hello):
            refusal = _went_back(source, hello.holdings.sequence)
        if refusal is not None or source is None:
            self.counters.refusals += 1
            assert refusal is not None
            return refusal
        new_agent = source.epoch != hello.handshake.epoch
        if new_agent:
            if source.lease_until_us is None or source.epoch == 0:
                source.lease_until_us = now_us + self._lease_us
            source.epoch = hello.handshake.epoch
            source.lease_ended = False
        if new_agent and source.session is not None:
            self.counters.superseded_agents += 1
        source.session = session = AgentSession(hello.worker_id)
        source.sequence = hello.holdings.sequence
        self._drop_report(source)
        source.in_step = not source.lease_ended and self._agrees(source, hello.holdings, now_us)
        wanted = not source.in_step and not source.lease_ended
        if wanted:
            source.report_requested_us = now_us
            self.counters.report_requests += 1
        self._settle(now_us)
        return session, Welcome(self.epoch, self._plan.routing.lease_ms, full_report_wanted=wanted)

    def on_agent_message(self, session: AgentSession, message: AgentToUnit, now_us: int) -> list[UnitToAgent]:
        """Takes the next message of a Report stream; returns what to answer. A Refusal ends the stream.

        Call `work` until it returns False before the stream's next message: that bounds what is left undone.
        """
        source = self._sources.get(session.worker_id)
        if source is None:
            return self._refused(self._not_planned(session.worker_id))
        if source.session is not session:
            return self._refused(superseded(session.worker_id))
        match message:
            case Edits():
                return self._on_edits(source, message, now_us)
            case FullReport():
                return self._on_full_report(source, message, now_us)
            case Renewal():
                return self._on_renewal(source, message, now_us)
            case AgentHello():
                return self._refused(Refusal("hello", "a stream has one hello, its first message"))
            case _:
                assert_never(message)

    def work(self, session: AgentSession, now_us: int) -> bool:
        """Edits another part of what the stream's last message left undone; whether there is more."""
        source = self._sources.get(session.worker_id)
        if source is None or source.session is not session or not source.is_busy:
            return False
        self._edit_slices(source)
        self._settle(now_us)
        return source.is_busy

    def stalled(self, duration_us: int) -> None:
        """The unit itself did not run for so long: renewals may wait unread, so leases end later by it."""
        for source in self._sources.values():
            if source.lease_until_us is not None:
                source.lease_until_us += duration_us

    def drain(self) -> None:
        """The process ends and turns its agents away, so that their silence says nothing: leases end no more,
        and time settles nothing. What is held stays for the snapshot that the next unit begins with.
        """
        self._draining = True

    def agent_disconnected(self, session: AgentSession) -> None:
        """The stream has ended. The worker's fields stay until its lease ends.

        What was left undone is dropped: nobody would work it off, and the next hello is compared anew.
        """
        source = self._sources.get(session.worker_id)
        if source is not None and source.session is session:
            source.session = None
            source.in_step = source.in_step and not source.backlog
            self._drop_report(source)

    def tick(self, now_us: int) -> bool:
        """Ends leases that are due, and goes on with what copying, clearing and growing tables leave to do.

        A few ms at most. Returns whether there is more to do: call again soon then, else within a lease's
        precision.
        """
        if self._copied_part():
            return True
        if not self._draining:
            self._end_leases(now_us)
        self._desk.tables_changed(self._tables.step())
        self._note_cleared()
        self._settle(now_us)
        return self._tables.is_busy or self._desk.is_copying or self._capture is not None

    # --- subscribers ------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal:
        """Opens a Subscribe stream.

        One whose plan is newer waits until the table has nothing of workers that it may not know.
        """
        if request.handshake.plan_version > self.plan_version:
            if not self._is_rid_of_leavers:
                self.counters.refusals += 1
                return _still_clearing(request, self.plan_version)
            self._desk.forget_up_to(self._places.last_cleared_at)
        opened = self._desk.subscribe(request, now_us)
        if isinstance(opened, Subscription):
            opened.waits = self._restored is None or self._restored.may_know_less_than(request)
        return opened

    def unsubscribe(self, subscription: Subscription) -> None:
        """The stream has ended."""
        self._desk.unsubscribe(subscription)

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        """The subscriber's view is exact up to a sequence."""
        self._desk.acknowledged(subscription, acknowledgement)

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        """The next messages for a subscriber, a few at a time; empty when it has all there is.

        A unit that has not settled gives nothing: the subscriber goes on serving what it has. A restored one
        has something for those whose view is not newer.
        """
        ready = self._settled or not subscription.waits or subscription.fell_behind
        return self._desk.take(subscription, now_us) if ready else []

    # --- its own disk -----------------------------------------------------------------------------

    def capture(self) -> UnitCapture | None:
        """Begins a copy of all that the unit holds, for its own disk; `tick` goes on with it.

        None while another is being made, or before the unit has settled: it would be less than the last one.
        """
        if not self._settled or (self._capture is not None and not self._capture.is_whole):
            return None
        workers = [source.worker for source in self._sources.values()]
        self._capture = UnitCapture(
            SnapshotHead(
                shard=self.shard,
                epoch=self.epoch,
                sequence=self.sequence,
                plan_version=self._plan.plan_version,
                value_bits=self._plan.index.value_bits,
                layout=dict(self._layout),
                workers=tuple(
                    SavedWorker(each.id, each.table, each.slot, *self._tables.held(each.table, each.slot))
                    for each in workers
                ),
            ),
            self._tables.freeze_entries([(each.table, each.slot) for each in workers]),
        )
        return self._capture

    # --- inside: agents ---------------------------------------------------------------------------

    def _on_edits(self, source: WorkerSource, edits: Edits, now_us: int) -> list[UnitToAgent]:
        refusal = self._unfit_keys(edits.keys, "edits.keys")
        if refusal is not None:
            return self._refused(refusal)
        if edits.sequence <= source.sequence:
            self.counters.old_messages += 1
            return []
        held, _ = self._tables.held(source.worker.table, source.worker.slot)
        if held > self._worker_keys_most:
            return self._refused(self._too_many(held))
        hole = edits.sequence > source.sequence + 1
        source.sequence = edits.sequence
        if hole:
            return self._on_hole(source, now_us)
        if source.report is not None:
            refusal = self._add_to_report(source, source.report, edits)
            if refusal is not None:
                return self._refused(refusal)
        elif source.in_step:
            self._edit(source, edits.keys, edits.tiers)
        else:
            self.counters.ignored_edits += 1
        return [Acknowledgement(source.sequence)]

    def _on_full_report(self, source: WorkerSource, chunk: FullReport, now_us: int) -> list[UnitToAgent]:
        refusal = self._unfit_keys(chunk.keys, "full_report.keys")
        if refusal is not None:
            return self._refused(refusal)
        if chunk.sequence <= source.sequence:
            self.counters.old_messages += 1
            return []
        hole = chunk.sequence > source.sequence + 1
        source.sequence = chunk.sequence
        if chunk.first:
            self._begin_report(source)
        elif hole or source.report is None or source.report.is_whole:
            return self._on_hole(source, now_us)
        report = source.report
        assert report is not None
        refusal = self._add_to_report(source, report, chunk)
        if refusal is None and report.size > 2 * self._worker_keys_most:
            refusal = self._too_many(report.size)
        if refusal is not None:
            return self._refused(refusal)
        if chunk.last:
            self.counters.full_reports += 1
            report.is_whole = True
            if not report.taken_in:
                source.report = None
            self._end_report(source)
            self._settle(now_us)
        return [Acknowledgement(source.sequence)]

    def _begin_report(self, source: WorkerSource) -> None:
        """A report begins anew: what came before it, and is not in the table yet, it says again."""
        self._drop_report(source)
        source.in_step = False
        source.report_requested_us = None
        source.report = PartialReport(taken_in=source.lease_until_us is not None)
        if source.report.taken_in:
            self._tables.begin_report(source.worker.table, source.worker.slot)

    def _add_to_report(
        self, source: WorkerSource, report: PartialReport, part: Edits | FullReport
    ) -> Refusal | None:
        """Takes in a chunk, or an edit that came between two; a report that grows too large is dropped."""
        report.size += part.keys.size
        if report.size > self.bounds.report_keys:
            self._drop_report(source)
            return Refusal(
                "full_report.keys",
                f"a report has at most {self.bounds.report_keys} keys, edits between included",
            )
        if report.taken_in:
            self._edit(source, part.keys, part.tiers)
        return None

    def _end_report(self, source: WorkerSource) -> None:
        """Once all of a report is in the table, has what it does not name withdrawn; then all is in step."""
        report, table, slot = source.report, source.worker.table, source.worker.slot
        if report is None or not report.is_whole or source.backlog:
            return
        if not report.has_ended:
            report.has_ended = True
            self._tables.end_report(table, slot)
        if not self._tables.is_reporting(table, slot):
            source.report = None
            source.in_step = True
            source.changed = True

    def _drop_report(self, source: WorkerSource) -> None:
        """Forgets what was taken in and is not in the table yet, and the report that it may be part of."""
        source.backlog.clear()
        source.report = None
        self._tables.drop_report(source.worker.table, source.worker.slot)

    def _not_planned(self, worker_id: str) -> Refusal:
        return Refusal(
            "worker_id", f"{worker_id} is not in plan version {self._plan.plan_version}; add it to the plan"
        )

    def _too_many(self, keys: int) -> Refusal:
        self.counters.over_bound += 1
        return Refusal(
            "index.worker_entries_max",
            f"{keys} keys of one worker in a shard, and plan version {self._plan.plan_version} allows"
            f" {self._worker_keys_most}; give agent and unit the same plan, or raise the bound",
        )

    def _on_renewal(self, source: WorkerSource, renewal: Renewal, now_us: int) -> list[UnitToAgent]:
        if renewal.holdings > self._worker_keys_most:
            return self._refused(self._too_many(renewal.holdings))
        source.lease_until_us = now_us + self._lease_us
        source.lease_ended = False
        if renewal.sequence > source.sequence:
            source.sequence = renewal.sequence
            return self._on_hole(source, now_us)
        if renewal.sequence < source.sequence or source.report is not None or source.backlog:
            return []
        if source.in_step:
            due = source.changed and now_us >= source.compared_us + self.bounds.compare_period_us
            if not due or self._agrees(source, renewal, now_us):
                return []
            self.counters.digest_mismatches += 1
            source.in_step = False
            return self._request_report(source, "the holdings differ", now_us)
        if self._agrees(source, renewal, now_us):
            source.in_step = True
            self._settle(now_us)
            return []
        return self._request_report(source, "the unit does not have what this worker holds", now_us)

    def _on_hole(self, source: WorkerSource, now_us: int) -> list[UnitToAgent]:
        self.counters.holes += 1
        source.in_step = False
        self._drop_report(source)
        return self._request_report(source, f"messages before {source.sequence} were lost", now_us)

    def _request_report(self, source: WorkerSource, reason: str, now_us: int) -> list[UnitToAgent]:
        requested = source.report_requested_us
        if requested is not None and now_us < requested + self.bounds.request_period_us:
            return []
        source.report_requested_us = now_us
        self.counters.report_requests += 1
        return [ReportRequest(reason)]

    def _agrees(self, source: WorkerSource, told: Renewal, now_us: int) -> bool:
        """Whether the table has what the agent says it holds."""
        source.changed = False
        source.compared_us = now_us
        held = self._tables.held(source.worker.table, source.worker.slot)
        return held == (told.holdings, told.holdings_digest)

    def _goes_back(self, source: WorkerSource, hello: AgentHello) -> bool:
        return source.epoch == hello.handshake.epoch and hello.holdings.sequence < source.sequence

    def _unfit_keys(self, keys: NDArray[np.uint64], field: str) -> Refusal | None:
        if keys.size > MESSAGE_KEYS_MOST:
            return Refusal(
                field,
                f"{keys.size} keys in one message; send at most {MESSAGE_KEYS_MOST}, and the rest in others",
            )
        if not keys.size:
            return None
        least, largest = _ends(keys)
        if least in self._keys and largest in self._keys:
            return None
        return Refusal(field, f"a key belongs to another shard than {self.shard}")

    def _refused(self, refusal: Refusal) -> list[UnitToAgent]:
        self.counters.refusals += 1
        return [refusal]

    def _end_leases(self, now_us: int) -> None:
        for source in self._sources.values():
            if source.lease_until_us is not None and source.lease_until_us <= now_us:
                source.lease_until_us = None
                source.lease_ended = True
                source.in_step = False
                source.report_requested_us = None
                self._drop_report(source)
                self._tables.clear_worker(source.worker.table, source.worker.slot)
                self.counters.leases_ended += 1

    def _settle(self, now_us: int) -> None:
        """Time alone ends the waiting for workers that are not there, not for a report under way."""
        if self._settled:
            return
        leases = (now_us - self._started_us) // self._lease_us
        awaited = [source for source in self._sources.values() if source.awaited]
        had_their_chance = not self._draining and (
            leases >= self.bounds.settle_reports_leases
            or (leases >= self.bounds.settle_leases and all(source.session is None for source in awaited))
        )
        self._settled = not awaited or had_their_chance
        if self._settled:
            self._desk.settled()

    @property
    def _is_rid_of_leavers(self) -> bool:
        planned = {worker.id for worker in self._plan.workers}
        return self._places.all_cleared and self._sources.keys() <= planned

    def _note_cleared(self) -> None:
        if not self._places.all_cleared:
            self._places.note_cleared(self._is_clear, self.sequence)

    def _is_clear(self, table: int, slot: int) -> bool:
        if table >= self._tables_open:
            return True
        return not self._tables.is_clearing(table, slot) and self._tables.held(table, slot) == (0, 0)

    # --- inside: the table ------------------------------------------------------------

    def _copied_part(self) -> bool:
        """Goes on copying the tables, if they are being copied: nothing may be edited meanwhile."""
        if self._desk.is_copying:
            self._desk.copy_part()
            return True
        if self._capture is None:
            return False
        if self._capture.is_whole:
            self._capture = None
            return False
        self._capture.step()
        return True

    def _edit(self, source: WorkerSource, keys: NDArray[np.uint64], tiers: NDArray[np.uint8]) -> None:
        if 0 < keys.size <= EDIT_SLICE:
            source.backlog.append((keys, tiers))
        else:
            for start in range(0, keys.size, EDIT_SLICE):
                stop = start + EDIT_SLICE
                source.backlog.append((keys[start:stop], tiers[start:stop]))
        source.changed = source.changed or keys.size > 0
        self._edit_slices(source)

    def _edit_slices(self, source: WorkerSource) -> None:
        """Does a part of what a worker's messages leave to do: a few milliseconds."""
        table, slot = source.worker.table, source.worker.slot
        if source.is_busy and self._copied_part():
            return
        if source.backlog and self._tables.is_clearing(table, slot):
            self._desk.tables_changed(self._tables.step())
            return
        if source.report is not None and source.report.has_ended:
            self._desk.tables_changed(self._tables.step())
        for _ in range(min(WORK_SLICES, len(source.backlog))):
            keys, tiers = source.backlog.popleft()
            busy = self._tables.is_busy
            if busy and keys.size > BUSY_KEYS:
                source.backlog.appendleft((keys[BUSY_KEYS:], tiers[BUSY_KEYS:]))
                keys, tiers = keys[:BUSY_KEYS], tiers[:BUSY_KEYS]
            self._desk.tables_changed(self._tables.edit(keys, table, slot, tiers))
            self.counters.edited_keys += keys.size
            if busy:
                break
        self._end_report(source)


def _ends(keys: NDArray[np.uint64]) -> tuple[int, int]:
    """The least key and the largest. A call of numpy takes as long as the list of a dozen does."""
    if keys.size > _FEW_KEYS:
        return int(keys.min()), int(keys.max())
    few = keys.tolist()
    return min(few), max(few)


def _slot_of(worker: Worker) -> str:
    return f"worker.{worker.id}.slot"


def _still_clearing(request: SubscribeRequest, plan_version: int) -> Refusal:
    return Refusal(
        PLAN_FIELD,
        f"{request.handshake.plan_version} is newer than {plan_version}, and workers that have left are still"
        " being cleared here; try again",
    )


def _not_yet(worker_id: str) -> Refusal:
    return Refusal(
        "worker_id",
        f"{worker_id} has the place of one that left: it is taken in when the plan is settled; try again",
    )


def _went_back(source: WorkerSource, sequence: int) -> Refusal:
    return Refusal(
        "sequence",
        f"{source.worker.id} went back from {source.sequence} to {sequence} without a new epoch; "
        "restart its agent",
    )
