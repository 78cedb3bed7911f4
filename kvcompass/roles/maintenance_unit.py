"""The maintenance unit of one shard (paper 3.2): agents report what workers hold, edges follow the table.

The unit is the only writer of its shard. Each worker is the source of truth for its own fields, so a unit
that starts empty is refilled by agents; until it is, it gives out no snapshot: its emptiness would be false.
Here is the agents' side: streams, leases, reports. The edges' side is `SubscriberDesk`.
"""

from collections.abc import Mapping
from typing import Final, assert_never

import numpy as np
from numpy.typing import NDArray

from kvcompass.keys.shards import shard_of
from kvcompass.plan.model import Plan
from kvcompass.roles.handshake import check_handshake
from kvcompass.roles.messages import (
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
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.subscriber_desk import SubscriberDesk
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.worker_source import AgentSession, PartialReport, WorkerSource, edits_between

EDIT_SLICE: Final = 256
"""Keys edited at once; bounds a log entry, so that a view applies it without holding requests up."""
WORK_SLICES: Final = 8
"""Slices edited in one call: a few milliseconds, whatever the size of a report."""
GROWING_SLICES: Final = 2
"""The same while a table is growing, of which each edit does a part."""


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
    ) -> None:
        """`layout`: `layout_fields(plan, digests)`. `epoch`: new at each start, not 0. `tables`: empty."""
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
        self._sources = {worker.id: WorkerSource(worker) for worker in plan.workers}
        self._desk = SubscriberDesk(
            tables,
            epoch=epoch,
            layout=layout,
            plan_version=plan.plan_version,
            bounds=self.bounds,
            counters=self.counters,
        )
        self._started_us = now_us
        self._settled = False

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
    def settled(self) -> bool:
        """The table may be served: every worker has reported in full, or has had its chance."""
        return self._settled

    def awaited_workers(self) -> list[str]:
        """Workers whose fields may not be what they hold: not yet connected, or asked for a report."""
        return [worker_id for worker_id, source in self._sources.items() if source.awaited]

    def live_workers(self) -> list[str]:
        """Workers with a lease."""
        return [worker_id for worker_id, source in self._sources.items() if source.lease_until_us is not None]

    def subscriber_lags(self) -> dict[str, int]:
        """Patch groups that each subscriber has not acknowledged."""
        return self._desk.lags()

    def holdings(self, worker_id: str) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Keys and tiers that the table has for a worker. Scans the worker's table."""
        worker = self._sources[worker_id].worker
        return self._tables.holdings(worker.table, worker.slot)

    # --- worker agents ----------------------------------------------------------------------------

    def agent_connected(self, hello: AgentHello, now_us: int) -> tuple[AgentSession, Welcome] | Refusal:
        """Opens a Report stream; a stream the worker had before is replaced.

        A first hello gives the worker one lease, in which to report and renew; a later one renews nothing.
        """
        refusal = check_handshake(hello.handshake, self._layout, self._plan.plan_version)
        source = self._sources.get(hello.worker_id)
        if refusal is None and source is None:
            refusal = Refusal(
                "worker_id",
                f"{hello.worker_id} is not in plan version {self._plan.plan_version}; add it to the plan",
            )
        elif refusal is None and hello.holdings.holdings > self._plan.worker_shard_entries_max:
            refusal = self._too_many(hello.holdings.holdings)
        elif refusal is None and source is not None and self._goes_back(source, hello):
            refusal = _went_back(source, hello.holdings.sequence)
        if refusal is not None or source is None:
            self.counters.refusals += 1
            assert refusal is not None
            return refusal
        new_agent = source.epoch != hello.handshake.epoch
        if new_agent:
            source.epoch = hello.handshake.epoch
            source.lease_ended = False
            if source.lease_until_us is None:
                source.lease_until_us = now_us + self._lease_us
        source.session = session = AgentSession(hello.worker_id)
        source.sequence = hello.holdings.sequence
        source.report = None
        source.backlog.clear()
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
        source = self._sources[session.worker_id]
        if source.session is not session:
            return self._refused(
                Refusal("stream", "a newer stream of this worker has taken this one's place")
            )
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
        source = self._sources[session.worker_id]
        if source.session is not session or not source.backlog:
            return False
        self._edit_slices(source)
        self._settle(now_us)
        return bool(source.backlog)

    def stalled(self, duration_us: int) -> None:
        """The unit itself did not run for so long: renewals may wait unread, so leases end later by it."""
        for source in self._sources.values():
            if source.lease_until_us is not None:
                source.lease_until_us += duration_us

    def agent_disconnected(self, session: AgentSession) -> None:
        """The stream has ended. The worker's fields stay until its lease ends.

        What was left undone is dropped: nobody would work it off, and the next hello is compared anew.
        """
        source = self._sources[session.worker_id]
        if source.session is session:
            source.session = None
            source.report = None
            if source.backlog:
                source.backlog.clear()
                source.in_step = False

    def tick(self, now_us: int) -> bool:
        """Ends leases that are due, and goes on with what copying, clearing and growing tables leave to do.

        A few ms at most. Returns whether there is more to do: call again soon then, else within a lease's
        precision.
        """
        if self._desk.is_copying:
            self._desk.copy_part()
            return True
        for source in self._sources.values():
            if source.lease_until_us is not None and source.lease_until_us <= now_us:
                source.lease_until_us = None
                source.lease_ended = True
                source.in_step = False
                source.report = None
                source.report_requested_us = None
                source.backlog.clear()
                self._tables.clear_worker(source.worker.table, source.worker.slot)
                self.counters.leases_ended += 1
        self._desk.tables_changed(self._tables.step())
        self._settle(now_us)
        return self._tables.is_busy or self._desk.is_copying

    # --- subscribers ------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal:
        """Opens a Subscribe stream."""
        return self._desk.subscribe(request, now_us)

    def unsubscribe(self, subscription: Subscription) -> None:
        """The stream has ended."""
        self._desk.unsubscribe(subscription)

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        """The subscriber's view is exact up to a sequence."""
        self._desk.acknowledged(subscription, acknowledgement)

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        """The next messages for a subscriber, a few at a time; empty when it has all there is.

        A unit that has not settled gives nothing: the subscriber goes on serving what it has.
        """
        return self._desk.take(subscription, now_us) if self._settled else []

    # --- inside: agents ---------------------------------------------------------------------------

    def _on_edits(self, source: WorkerSource, edits: Edits, now_us: int) -> list[UnitToAgent]:
        refusal = self._foreign_key(edits.keys, "edits.keys")
        if refusal is not None:
            return self._refused(refusal)
        if edits.sequence <= source.sequence:
            self.counters.old_messages += 1
            return []
        held, _ = self._tables.held(source.worker.table, source.worker.slot)
        if held > self._plan.worker_shard_entries_max:
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
        refusal = self._foreign_key(chunk.keys, "full_report.keys")
        if refusal is not None:
            return self._refused(refusal)
        if chunk.sequence <= source.sequence:
            self.counters.old_messages += 1
            return []
        hole = chunk.sequence > source.sequence + 1
        source.sequence = chunk.sequence
        if chunk.first:
            source.report = PartialReport()
            source.report_requested_us = None
        elif hole or source.report is None:
            return self._on_hole(source, now_us)
        report = source.report
        refusal = self._add_to_report(source, report, chunk)
        if refusal is None and report.size > 2 * self._plan.worker_shard_entries_max:
            refusal = self._too_many(report.size)
        if refusal is not None:
            return self._refused(refusal)
        if chunk.last:
            source.report = None
            self.counters.full_reports += 1
            if source.lease_until_us is not None:
                held_keys, held_tiers = self.holdings(source.worker.id)
                self._take_in(source, *edits_between(held_keys, held_tiers, *report.holdings()))
                source.in_step = True
                self._settle(now_us)
        return [Acknowledgement(source.sequence)]

    def _add_to_report(
        self, source: WorkerSource, report: PartialReport, part: Edits | FullReport
    ) -> Refusal | None:
        """Adds a chunk, or an edit that came between two; a report that grows too large is dropped."""
        if report.size + part.keys.size > self.bounds.report_keys:
            source.report = None
            return Refusal(
                "full_report.keys",
                f"a report has at most {self.bounds.report_keys} keys, edits between included",
            )
        report.add(part.keys, part.tiers)
        return None

    def _too_many(self, keys: int) -> Refusal:
        self.counters.over_bound += 1
        return Refusal(
            "index.worker_entries_max",
            f"{keys} keys of one worker in a shard, and plan version {self._plan.plan_version} allows"
            f" {self._plan.worker_shard_entries_max}; give agent and unit the same plan, or raise the bound",
        )

    def _on_renewal(self, source: WorkerSource, renewal: Renewal, now_us: int) -> list[UnitToAgent]:
        if renewal.holdings > self._plan.worker_shard_entries_max:
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
        source.report = None
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

    def _foreign_key(self, keys: NDArray[np.uint64], field: str) -> Refusal | None:
        if bool((shard_of(keys, self._plan.shards) == self.shard).all()):
            return None
        return Refusal(field, f"a key belongs to another shard than {self.shard}")

    def _refused(self, refusal: Refusal) -> list[UnitToAgent]:
        self.counters.refusals += 1
        return [refusal]

    def _settle(self, now_us: int) -> None:
        """Time alone ends the waiting for workers that are not there, not for a report under way."""
        if self._settled:
            return
        leases = (now_us - self._started_us) // self._lease_us
        awaited = [source for source in self._sources.values() if source.awaited]
        self._settled = (
            not awaited
            or leases >= self.bounds.settle_reports_leases
            or (leases >= self.bounds.settle_leases and all(source.session is None for source in awaited))
        )

    # --- inside: the table ------------------------------------------------------------

    def _edit(self, source: WorkerSource, keys: NDArray[np.uint64], tiers: NDArray[np.uint8]) -> None:
        for start in range(0, keys.size, EDIT_SLICE):
            stop = start + EDIT_SLICE
            source.backlog.append((keys[start:stop], tiers[start:stop]))
        source.changed = source.changed or keys.size > 0
        self._edit_slices(source)

    def _take_in(self, source: WorkerSource, keys: NDArray[np.uint64], tiers: NDArray[np.uint8]) -> None:
        """Edit many keys: while nobody is served yet and few are in the table, by building it anew."""
        worker = source.worker
        busy = self._settled or source.backlog or self._desk.is_copying
        if busy or not self._tables.prefers_load(worker.table, keys.size):
            self._edit(source, keys, tiers)
            return
        self._desk.tables_changed(self._tables.load(keys, worker.table, worker.slot, tiers))
        self.counters.edited_keys += keys.size
        source.changed = True

    def _edit_slices(self, source: WorkerSource) -> None:
        table, slot = source.worker.table, source.worker.slot
        if source.backlog and self._desk.is_copying:
            self._desk.copy_part()
            return
        if source.backlog and self._tables.is_clearing(table, slot):
            self._desk.tables_changed(self._tables.step())
            return
        slices = GROWING_SLICES if self._tables.is_growing else WORK_SLICES
        for _ in range(min(slices, len(source.backlog))):
            keys, tiers = source.backlog.popleft()
            self._desk.tables_changed(self._tables.edit(keys, table, slot, tiers))
            self.counters.edited_keys += keys.size


def _went_back(source: WorkerSource, sequence: int) -> Refusal:
    return Refusal(
        "sequence",
        f"{source.worker.id} went back from {source.sequence} to {sequence} without a new epoch; "
        "restart its agent",
    )
