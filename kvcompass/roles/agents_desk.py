"""The agents of a maintenance unit: each tells what its worker holds, and is asked when that is in doubt.

Counterpart of `UnitDesk`, which has the edges' streams.
"""

from collections.abc import Mapping
from typing import assert_never

from kvcompass.keys.shards import keys_of
from kvcompass.roles.agent_refusals import not_its_own, not_planned, not_yet, too_many_keys, unfit_keys
from kvcompass.roles.handshake import check_handshake, superseded
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentHello,
    AgentToUnit,
    Edits,
    FullReport,
    Refusal,
    Renewal,
    ReportRequest,
    UnitToAgent,
    Welcome,
)
from kvcompass.roles.shard_writer import ShardWriter
from kvcompass.roles.turns import Superseded, Turns
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters
from kvcompass.roles.unit_edits import UnitEdits
from kvcompass.roles.unit_leases import UnitLeases
from kvcompass.roles.unit_places import UnitPlaces
from kvcompass.roles.unit_plan import UnitPlan
from kvcompass.roles.unit_settling import UnitSettling
from kvcompass.roles.worker_source import AgentSession, WorkerSource


class AgentsDesk:
    """State machine of all Report streams: owns their sessions and sequences, and who is in step.

    What comes in order goes to `UnitEdits`; a renewal to `UnitLeases`, and it is compared with the tables.
    """

    def __init__(
        self,
        plan: UnitPlan,
        tables: ShardWriter,
        sources: Mapping[str, WorkerSource],
        *,
        shard: int,
        epoch: int,
        layout: Mapping[str, str],
        places: UnitPlaces,
        edits: UnitEdits,
        leases: UnitLeases,
        settling: UnitSettling,
        bounds: UnitBounds,
        counters: UnitCounters,
    ) -> None:
        """`sources`, `shard`, `epoch` and `layout` are the unit's; `counters` is counted into."""
        self._plan = plan
        self._tables = tables
        self._sources = sources
        self._shard = shard
        self._keys = keys_of(shard, plan.now.shards)
        self._epoch = epoch
        self._layout = layout
        self._places = places
        self._edits = edits
        self._leases = leases
        self._settling = settling
        self._bounds = bounds
        self._counters = counters
        self._turns = Turns()

    # --- streams ----------------------------------------------------------------------------------

    def connected(self, hello: AgentHello, now_us: int) -> tuple[AgentSession, Welcome] | Refusal:
        """Opens a Report stream; a stream that the worker had before is over.

        What counts of sequences is the new stream's: it says what is held, and that is compared.
        """
        source = self._sources.get(hello.worker_id)
        refusal = self._refusal_of(hello, source)
        if refusal is not None or source is None:
            self._counters.refusals += 1
            assert refusal is not None
            return refusal
        turn = self._turns.take(hello.worker_id, hello.handshake.epoch)
        self._counters.superseded_agents += turn.instead_of is Superseded.ANOTHER
        self._counters.superseded_streams += turn.instead_of is Superseded.SAME
        if source.epoch != hello.handshake.epoch:
            self._leases.new_agent(source, now_us)
            source.epoch = hello.handshake.epoch
        source.session = session = AgentSession(turn, self._plan.now.routing.lease_ms)
        source.sequence = hello.holdings.sequence
        self._edits.drop(source)
        source.in_step = not source.lease_ended and self._agrees(source, hello.holdings, now_us)
        wanted = not source.in_step and not source.lease_ended
        if wanted:
            source.report_requested_us = now_us
            self._counters.report_requests += 1
        self._settling.look(now_us)
        return session, Welcome(self._epoch, session.told_ms, full_report_wanted=wanted)

    def on_message(self, session: AgentSession, message: AgentToUnit, now_us: int) -> list[UnitToAgent]:
        """Takes the next message of a stream; returns what to answer. A Refusal ends the stream."""
        source = self._sources.get(session.worker_id)
        if source is None or source.session is not session:
            return self._refused(self.why_over(session))
        match message:
            case Edits():
                return self._on_edits(source, message, now_us)
            case FullReport():
                return self._on_full_report(source, message, now_us)
            case Renewal():
                return self._on_renewal(source, session, message, now_us)
            case AgentHello():
                return self._refused(Refusal("hello", "a stream has one hello, its first message"))
            case _:
                assert_never(message)

    def work(self, session: AgentSession, now_us: int) -> bool:
        """Edits another part of what the stream's last message left undone; whether there is more."""
        source = self._sources.get(session.worker_id)
        if source is None or source.session is not session or not source.is_busy:
            return False
        self._edits.step(source)
        self._settling.look(now_us)
        return source.is_busy

    def why_over(self, session: AgentSession) -> Refusal:
        """What a stream is told whose turn is over, or whose worker has left."""
        if session.worker_id not in self._sources:
            return not_planned(session.worker_id, self._plan.version)
        return superseded(session.worker_id)

    def disconnected(self, session: AgentSession) -> None:
        """The stream has ended.

        What was left undone is dropped: nobody would work it off, and the next hello is compared anew.
        """
        self._turns.give_up(session.turn)
        source = self._sources.get(session.worker_id)
        if source is not None and source.session is session:
            source.session = None
            source.in_step = source.in_step and not source.backlog
            self._edits.drop(source)

    # --- inside: messages -------------------------------------------------------------------------

    def _refusal_of(self, hello: AgentHello, source: WorkerSource | None) -> Refusal | None:
        refusal = check_handshake(hello.handshake, self._layout, self._plan.version)
        if refusal is not None:
            return refusal
        if hello.worker_id != hello.handshake.component_id:
            return not_its_own(hello.handshake.component_id, hello.worker_id)
        if source is None:
            return not_planned(hello.worker_id, self._plan.version)
        if self._places.must_wait(hello.worker_id):
            return not_yet(hello.worker_id)
        if hello.holdings.holdings > self._plan.worker_keys_most:
            return self._too_many(hello.holdings.holdings)
        return None

    def _on_edits(self, source: WorkerSource, edits: Edits, now_us: int) -> list[UnitToAgent]:
        refusal = unfit_keys(edits.keys, self._keys, self._shard, "edits.keys")
        if refusal is not None:
            return self._refused(refusal)
        if edits.sequence <= source.sequence:
            self._counters.old_messages += 1
            return []
        held, _ = self._tables.held(source.worker.table, source.worker.slot)
        if held > self._plan.worker_keys_most:
            return self._refused(self._too_many(held))
        hole = edits.sequence > source.sequence + 1
        source.sequence = edits.sequence
        if hole:
            return self._on_hole(source, now_us)
        if source.report is not None:
            refusal = self._edits.add_to_report(source, source.report, edits)
            if refusal is not None:
                return self._refused(refusal)
        elif source.in_step:
            self._edits.add(source, edits.keys, edits.tiers)
        else:
            self._counters.ignored_edits += 1
        return [Acknowledgement(source.sequence)]

    def _on_full_report(self, source: WorkerSource, chunk: FullReport, now_us: int) -> list[UnitToAgent]:
        refusal = unfit_keys(chunk.keys, self._keys, self._shard, "full_report.keys")
        if refusal is not None:
            return self._refused(refusal)
        if chunk.sequence <= source.sequence:
            self._counters.old_messages += 1
            return []
        hole = chunk.sequence > source.sequence + 1
        source.sequence = chunk.sequence
        if chunk.first:
            self._edits.begin_report(source)
        elif hole or source.report is None or source.report.is_whole:
            return self._on_hole(source, now_us)
        report = source.report
        assert report is not None
        refusal = self._edits.add_to_report(source, report, chunk)
        if refusal is None and report.size > 2 * self._plan.worker_keys_most:
            refusal = self._too_many(report.size)
        if refusal is not None:
            return self._refused(refusal)
        if chunk.last:
            self._counters.full_reports += 1
            self._edits.report_is_whole(source, report)
            self._settling.look(now_us)
        return [Acknowledgement(source.sequence)]

    def _on_renewal(
        self, source: WorkerSource, session: AgentSession, renewal: Renewal, now_us: int
    ) -> list[UnitToAgent]:
        if renewal.holdings > self._plan.worker_keys_most:
            return self._refused(self._too_many(renewal.holdings))
        self._leases.renew(source, 1_000 * session.told_ms, now_us)
        return [*self._tell_lease(session), *self._compare(source, renewal, now_us)]

    def _tell_lease(self, session: AgentSession) -> list[UnitToAgent]:
        """An agent that does not have the plan learns by this alone that the lease is another one."""
        lease_ms = self._plan.now.routing.lease_ms
        if session.told_ms == lease_ms:
            return []
        session.told_ms = lease_ms
        return [Welcome(self._epoch, lease_ms, full_report_wanted=False)]

    def _compare(self, source: WorkerSource, renewal: Renewal, now_us: int) -> list[UnitToAgent]:
        if renewal.sequence > source.sequence:
            source.sequence = renewal.sequence
            return self._on_hole(source, now_us)
        if renewal.sequence < source.sequence or source.report is not None or source.backlog:
            return []
        if source.in_step:
            due = source.changed and now_us >= source.compared_us + self._bounds.compare_period_us
            if not due or self._agrees(source, renewal, now_us):
                return []
            self._counters.digest_mismatches += 1
            source.in_step = False
            return self._request_report(source, "the holdings differ", now_us)
        if self._agrees(source, renewal, now_us):
            source.in_step = True
            self._settling.look(now_us)
            return []
        return self._request_report(source, "the unit does not have what this worker holds", now_us)

    def _on_hole(self, source: WorkerSource, now_us: int) -> list[UnitToAgent]:
        self._counters.holes += 1
        source.in_step = False
        self._edits.drop(source)
        return self._request_report(source, f"messages before {source.sequence} were lost", now_us)

    # --- inside: what is in doubt -----------------------------------------------------------------

    def _agrees(self, source: WorkerSource, told: Renewal, now_us: int) -> bool:
        """Whether the table has what the agent says it holds."""
        source.changed = False
        source.compared_us = now_us
        held = self._tables.held(source.worker.table, source.worker.slot)
        return held == (told.holdings, told.holdings_digest)

    def _request_report(self, source: WorkerSource, reason: str, now_us: int) -> list[UnitToAgent]:
        requested = source.report_requested_us
        if requested is not None and now_us < requested + self._bounds.request_period_us:
            return []
        source.report_requested_us = now_us
        self._counters.report_requests += 1
        return [ReportRequest(reason)]

    def _too_many(self, keys: int) -> Refusal:
        self._counters.over_bound += 1
        return too_many_keys(keys, self._plan.worker_keys_most, self._plan.version)

    def _refused(self, refusal: Refusal) -> list[UnitToAgent]:
        self._counters.refusals += 1
        return [refusal]
