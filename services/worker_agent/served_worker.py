"""One worker, served: its agent, its engine's load and events, its streams to units and edges."""

import asyncio
import random
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial

import grpc.aio
import zmq.asyncio

from kvcompass.plan.model import Edge, Plan
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.engine_fit import EngineRefusal
from kvcompass.roles.engine_standing import Judge
from kvcompass.roles.holdings import ShardEdits
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake, PrefillAnswer
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_agent import WorkerAgent
from services.runtime.epoch import new_epoch, now_us
from services.runtime.grpc_transport import Dialer
from services.runtime.logs import get_logger
from services.worker_agent.edge_readings import EdgeReadings
from services.worker_agent.engine_client import EngineClient, EngineError
from services.worker_agent.engine_follower import EngineFollower
from services.worker_agent.engine_kind import wrong_kind
from services.worker_agent.load_sources.reader import LoadReader
from services.worker_agent.load_stream import LoadStream
from services.worker_agent.prefill_calls import prefill_calls
from services.worker_agent.replica_prefiller import ReplicaPrefiller
from services.worker_agent.report_stream import ReportStream
from services.worker_agent.self_tester import SelfTester
from services.worker_agent.settings import WorkerAgentSettings, prefill_rules, repeated_stores, tree_limits


class ServedWorker:
    """Everything about one worker. `channel` gives the shared channel of a plan address."""

    def __init__(
        self,
        plan: Plan,
        worker_id: str,
        settings: WorkerAgentSettings,
        *,
        layout: Mapping[str, str],
        dialer: Dialer,
        channel: Callable[[str], grpc.aio.Channel],
        context: zmq.asyncio.Context,
    ) -> None:
        self.agent = WorkerAgent(
            plan,
            worker_id,
            new_epoch(),
            repeated_stores=repeated_stores(settings),
            limits=tree_limits(settings),
            silent_us=settings.engine.silent_ms * 1_000,
        )
        worker = self.agent.worker
        self._plan = plan
        self._layout = layout
        self._channel = channel
        self._stream_settings = settings.streams
        self._settings = settings.engine
        self._log = get_logger("worker").bind(worker=worker_id)
        self._client = EngineClient(
            dialer.url(worker.url),
            api_key=settings.engine.api_key,
            timeout_ms=settings.engine.load_timeout_ms,
        )
        self.loads = LoadReader(
            self._client,
            context,
            worker_id=worker_id,
            url=worker.url,
            dial=dialer.url,
            rank=worker.dp_rank,
            settings=settings.engine,
            now_us=now_us,
        )
        self.self_test = SelfTester(
            self.agent,
            self._client,
            EdgeReadings(self._edges, self._handshake),
            plan=lambda: self._plan,
            settings=settings.self_test,
            listens_to=lambda: self.follower.endpoints.events,
            refuse=partial(self._refuse, Judge.PROBE),
            readmit=partial(self._readmit, Judge.PROBE),
        )
        self.replicas: ReplicaPrefiller | None = None
        """None: its settings take no replicas."""
        if settings.replica.enabled:
            self.replicas = ReplicaPrefiller(
                self.agent,
                prefill_calls(settings.engine.kind, self._client, plan.model.id, worker.dp_rank),
                prefill_rules(settings, plan.model.context_length),
                answer=self._answer_prefill,
                now_us=now_us,
            )
        self.follower = EngineFollower(
            self.agent,
            self._client,
            context,
            dial=dialer.url,
            settings=settings.engine,
            new_epoch=new_epoch,
            publish=self._publish,
            overhears=self.self_test.hears,
        )
        self.reports = {
            unit.shard: ReportStream(
                UnitReport(
                    self.agent,
                    unit.shard,
                    layout,
                    plan.plan_version,
                    lease_ms=plan.routing.lease_ms,
                    pending_limit=settings.streams.pending_keys,
                ),
                channel(unit.address),
                unit_id=unit.id,
                worker_id=worker_id,
                vouches=lambda: self.agent.vouches,
                may_renew=lambda: self.agent.may_renew(now_us()),
                settings=settings.streams,
            )
            for unit in plan.units
        }
        self.load_streams = [
            self._load_stream(edge, plan.plan_version) for edge in plan.edges if edge.region == worker.region
        ]
        self._running: asyncio.TaskGroup | None = None
        self._load_tasks: dict[str, asyncio.Task[None]] = {}
        """By edge."""
        self._wrong_kind: EngineRefusal | None = None
        self.failures = 0
        """Times that an error nobody foresaw ended it, and it was built anew. Monotonic."""
        self.load_failures = 0
        """Questions for the load that failed. Monotonic."""
        self.load_problem = "not asked yet"
        """Why the last one failed; empty when it did not."""

    @property
    def plan(self) -> Plan:
        """It goes by this one."""
        return self._plan

    @property
    def left_out(self) -> int:
        """Events and blocks not taken in, so that less is known than is held. Monotonic."""
        decoder = self.follower.decoder.counters
        return self.agent.holdings.left_out + decoder.malformed_events + decoder.unknown_events

    async def run(self) -> None:
        """Run until cancelled."""
        with closing(self.loads):
            async with self._client, asyncio.TaskGroup() as group:
                group.create_task(self._poll_load(), name=f"load of {self.agent.worker.id}")
                group.create_task(self.follower.run(), name=f"events of {self.agent.worker.id}")
                group.create_task(self.self_test.run(), name=f"self-test of {self.agent.worker.id}")
                if self.replicas is not None:
                    group.create_task(self.replicas.run(), name=f"replicas at {self.agent.worker.id}")
                for report in self.reports.values():
                    group.create_task(report.run(), name=f"{self.agent.worker.id} to {report.unit_id}")
                self._running = group
                for stream in self.load_streams:
                    self._begin(group, stream)

    def apply_plan(self, plan: Plan) -> None:
        """Goes by the next version of the plan, which has this worker."""
        self._plan = plan
        for report in self.reports.values():
            report.report.apply_plan(plan.plan_version, plan.routing.lease_ms)
        self._publish(self.agent.apply_plan(plan))
        edges = {edge.id: edge for edge in plan.edges if edge.region == self.agent.worker.region}
        for stream in self.load_streams:
            stream.apply_plan(plan.plan_version)
            if stream.edge_id not in edges and stream.edge_id in self._load_tasks:
                self._load_tasks.pop(stream.edge_id).cancel()
        self.load_streams = [stream for stream in self.load_streams if stream.edge_id in edges]
        for edge_id in edges.keys() - {stream.edge_id for stream in self.load_streams}:
            stream = self._load_stream(edges[edge_id], plan.plan_version)
            self.load_streams.append(stream)
            if self._running is not None:
                self._begin(self._running, stream)

    def settle_plan(self) -> None:
        """Withdraws what only the version before registered."""
        for report in self.reports.values():
            report.report.settle_plan()
        self._publish(self.agent.settle_plan())

    def _edges(self) -> Mapping[str, grpc.aio.Channel]:
        """Channels to the edges of the region, by id."""
        region = self.agent.worker.region
        return {
            edge.id: self._channel(edge.grpc_address) for edge in self._plan.edges if edge.region == region
        }

    def _handshake(self) -> Handshake:
        worker_id, version = self.agent.worker.id, self._plan.plan_version
        return Handshake(worker_id, self.agent.epoch, PROTOCOL_VERSION, version, self._layout)

    def _refuse(self, judge: Judge, refusal: EngineRefusal) -> None:
        self._log.error("refused", field=refusal.field, message=refusal.message)
        self._publish(self.agent.judge(judge, refusal))

    def _readmit(self, judge: Judge) -> None:
        """What the engine holds was forgotten: it is taken for one that was never attached to."""
        self.agent.judge(judge, None)
        self.agent.on_events_lost()
        self.follower.attach_anew()
        self._publish(())

    def _load_stream(self, edge: Edge, plan_version: int) -> LoadStream:
        return LoadStream(
            self._channel(edge.grpc_address),
            edge_id=edge.id,
            worker_id=self.agent.worker.id,
            epoch=self.agent.epoch,
            layout=self._layout,
            plan_version=plan_version,
            load=lambda: self.agent.load(now_us()),
            settings=self._stream_settings,
            on_prefill=None if self.replicas is None else self.replicas.ask,
        )

    def _answer_prefill(self, edge_id: str, answer: PrefillAnswer) -> None:
        for stream in self.load_streams:
            if stream.edge_id == edge_id:
                stream.answer(answer)

    def _begin(self, group: asyncio.TaskGroup, stream: LoadStream) -> None:
        name = f"{self.agent.worker.id} to {stream.edge_id}"
        self._load_tasks[stream.edge_id] = group.create_task(stream.run(), name=name)

    async def _poll_load(self) -> None:
        loop = asyncio.get_running_loop()
        failures = restarts = 0
        while True:
            asked = loop.time()
            if restarts != self.agent.engine_restarts:
                restarts = self.agent.engine_restarts
                self.loads.reconsider()
            try:
                told = await self.loads.read(recent_us=self.agent.answers_within_us // 2)
            except EngineError as error:
                failures += 1
                self.load_failures += 1
                self.load_problem = str(error)
                if failures == self._settings.failures_before_unreachable:
                    self.loads.reconsider()
                    self._engine_gone()
            else:
                failures = 0
                self.load_problem = ""
                before = self.agent.state
                self.agent.on_engine_load(
                    told.load, now_us(), heard_us=told.heard_us, answered_us=told.answered_us
                )
                if self.agent.state is not before:
                    self._state_changed()
                self._judge_kind()
                self.follower.engine_answers()
            for stream in self.load_streams:
                stream.wake()
            if self.replicas is not None:
                self.replicas.wake()
            rest_s = self.loads.period_ms / 1_000 * random.uniform(0.9, 1.1) - (loop.time() - asked)  # noqa: S311
            await asyncio.sleep(max(0.0, rest_s))

    def _judge_kind(self) -> None:
        """Before its first event is read, and whenever its load comes from elsewhere.

        Where its holdings are predicted no event is read, and nothing hangs on it.
        """
        indexed = not self.agent.is_approximate
        refusal = wrong_kind(self._settings.kind, self.loads.kind) if indexed else None
        if refusal == self._wrong_kind:
            return
        self._wrong_kind = refusal
        if refusal is None:
            self._readmit(Judge.KIND)
        else:
            self._refuse(Judge.KIND, refusal)

    def _state_changed(self) -> None:
        if self.agent.state is AgentState.SILENT:
            self._log.warning("engine sends no events", reason=self.agent.engine.silence)
        self._publish(())

    def _engine_gone(self) -> None:
        if self.agent.state is not AgentState.UNREACHABLE:
            self._log.warning("engine unreachable", reason=self.load_problem)
        self.agent.on_engine_down()
        self.follower.engine_gone()
        self._publish(())

    def _publish(self, edits: tuple[ShardEdits, ...]) -> None:
        for edit in edits:
            self.reports[edit.shard].report.on_edits(edit)
        for report in self.reports.values():
            report.wake()
        self.self_test.wake()
