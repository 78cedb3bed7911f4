"""The maintenance unit of one shard (paper 3.2): agents report what workers hold, edges follow the table.

The unit is the only writer of its shard. Each worker is the source of truth for its own fields, so a unit
that starts empty is refilled by agents; until it is, it gives out no snapshot: its emptiness would be false.
One that starts with its own snapshot is corrected by them. The agents' side is `AgentsDesk`, the edges'
`UnitDesk`.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kvcompass.plan.model import Plan
from kvcompass.roles.agents_desk import AgentsDesk
from kvcompass.roles.free_places import VacantPlace
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    Refusal,
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
from kvcompass.roles.unit_copies import UnitCopies
from kvcompass.roles.unit_desk import UnitDesk
from kvcompass.roles.unit_edits import UnitEdits
from kvcompass.roles.unit_leases import UnitLeases
from kvcompass.roles.unit_places import UnitPlaces
from kvcompass.roles.unit_plan import UnitPlan
from kvcompass.roles.unit_settling import UnitSettling
from kvcompass.roles.worker_source import AgentSession, Registered, WorkerSource


class MaintenanceUnit:
    """State machine of one shard's writer. Owns its tables; times are the caller's monotonic microseconds.

    Owns who its workers are, too; each of its parts owns one thing about them.
    """

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
        self.counters = counters = UnitCounters()
        self.bounds = bounds = bounds or UnitBounds()
        self._plan = UnitPlan(plan)
        self._tables = tables
        self._sources = sources = {worker.id: WorkerSource(worker) for worker in plan.workers}
        self._desk = UnitDesk(
            tables,
            epoch=epoch,
            layout=layout,
            plan_version=plan.plan_version,
            foreseen=[edge.id for edge in plan.edges],
            bounds=bounds,
            counters=counters,
        )
        self._places = UnitPlaces(self._plan, tables, self._desk, sources)
        self._copies = UnitCopies(
            self._plan, tables, self._desk, shard=unit.shard, epoch=epoch, layout=layout
        )
        self._edits = UnitEdits(tables, self._desk, self._copies, bounds=bounds, counters=counters)
        self._leases = UnitLeases(self._plan, tables, self._edits, sources, counters=counters)
        if restored is not None:
            self._leases.restore(restored.workers, bounds.settle_leases, now_us)
        self._settling = UnitSettling(
            self._plan, self._desk, sources, bounds=bounds, restored=restored, started_us=now_us
        )
        self._agents = AgentsDesk(
            self._plan,
            tables,
            sources,
            shard=unit.shard,
            epoch=epoch,
            layout=layout,
            places=self._places,
            edits=self._edits,
            leases=self._leases,
            settling=self._settling,
            bounds=bounds,
            counters=counters,
        )

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
        return self._settling.is_over

    @property
    def restored(self) -> RestoredFrom | None:
        """The snapshot that the unit began with; None when it began empty."""
        return self._settling.restored

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
        return self._plan.version

    def vacant_places(self) -> list[VacantPlace]:
        """Places that were given and that nobody has, and whether the next version may give them again."""
        return self._places.vacant()

    def check_plan(self, plan: Plan) -> None:
        """Errors: KVCompassError when the next version gives a place that is not free, and why."""
        self._places.check(plan)

    def apply_plan(self, plan: Plan) -> None:
        """Goes by the next version of the plan, which `kvcompass.plan.change` allows to follow this one.

        Until `settle_plan` workers of both are known, and the wider of two bounds holds.
        """
        self._plan.apply(plan)
        self._places.open_tables(plan.tables)
        self._desk.apply_plan(plan.plan_version, [edge.id for edge in plan.edges])
        for worker in plan.workers:
            source = self._sources.get(worker.id)
            if source is None:
                self._sources[worker.id] = WorkerSource(worker)
                self._places.give(worker)
            else:
                source.worker = worker

    def settle_plan(self) -> None:
        """Forgets what only the version before had: a worker that has left is cleared in every view."""
        self._plan.settle()
        planned = self._plan.worker_ids()
        for worker_id in [worker_id for worker_id in self._sources if worker_id not in planned]:
            source = self._sources.pop(worker_id)
            if source.session is not None:
                source.session.turn.end()
            self._edits.drop(source)
            self._places.leave(source.worker)
        self._places.settle()

    # --- worker agents ----------------------------------------------------------------------------

    def agent_connected(self, hello: AgentHello, now_us: int) -> tuple[AgentSession, Welcome] | Refusal:
        """Opens a Report stream; a stream the worker had before is replaced.

        A first hello gives the worker one lease, in which to report and renew; a later one renews nothing.
        """
        return self._agents.connected(hello, now_us)

    def on_agent_message(self, session: AgentSession, message: AgentToUnit, now_us: int) -> list[UnitToAgent]:
        """Takes the next message of a Report stream; returns what to answer. A Refusal ends the stream.

        Call `work` until it returns False before the stream's next message: that bounds what is left undone.
        """
        return self._agents.on_message(session, message, now_us)

    def work(self, session: AgentSession, now_us: int) -> bool:
        """Edits another part of what the stream's last message left undone; whether there is more."""
        return self._agents.work(session, now_us)

    def why_over(self, session: AgentSession) -> Refusal:
        """What a Report stream is told whose turn is over (`session.turn`). It ends, whatever it does."""
        return self._agents.why_over(session)

    def agent_disconnected(self, session: AgentSession) -> None:
        """The stream has ended. The worker's fields stay until its lease ends."""
        self._agents.disconnected(session)

    def stalled(self, duration_us: int) -> None:
        """The unit itself did not run for so long: renewals may wait unread, so leases end later by it."""
        self._leases.stalled(duration_us)

    def drain(self) -> None:
        """The process ends and turns its agents away, so that their silence says nothing: leases end no more,
        and time settles nothing. What is held stays for the snapshot that the next unit begins with.
        """
        self._leases.drain()
        self._settling.drain()

    def tick(self, now_us: int) -> bool:
        """Ends leases that are due, and goes on with what copying, clearing and growing tables leave to do.

        A few ms at most. Returns whether there is more to do: call again soon then, else within a lease's
        precision.
        """
        if self._copies.step():
            return True
        self._leases.end_due(now_us)
        self._desk.tables_changed(self._tables.step())
        self._places.note_cleared()
        self._settling.look(now_us)
        return self._tables.is_busy or self._copies.under_way

    # --- subscribers ------------------------------------------------------------------------------

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal:
        """Opens a Subscribe stream.

        One whose plan is newer waits until the table has nothing of workers that it may not know.
        """
        refusal = self._places.make_ready_for(request)
        if refusal is not None:
            self.counters.refusals += 1
            return refusal
        opened = self._desk.subscribe(request, now_us)
        if isinstance(opened, Subscription):
            opened.waits = self._settling.must_wait(request)
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
        return self._desk.take(subscription, now_us) if self._settling.may_serve(subscription) else []

    # --- its own disk -----------------------------------------------------------------------------

    def capture(self) -> UnitCapture | None:
        """Begins a copy of all that the unit holds, for its own disk; `tick` goes on with it.

        None while another is being made, or before the unit has settled: it would be less than the last one.
        """
        workers = [source.worker for source in self._sources.values()]
        return self._copies.begin(workers) if self.settled else None
