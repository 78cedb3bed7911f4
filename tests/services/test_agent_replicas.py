"""Replicas that an edge asks for: prefilled at an idle engine, stopped for others, refused for a reason."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
from structlog.testing import capture_logs

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentLoad,
    LoadReply,
    PrefillAnswer,
    PrefillOutcome,
    ReplicaPrefill,
)
from kvcompass.roles.replica_prefill import PrefillRules
from kvcompass.roles.worker_agent import WorkerAgent
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.http_server import HttpServer
from services.runtime.settings import TlsSettings
from services.wire.rpc import Context, register_load_exchange
from services.worker_agent.engine_client import DeniedError, EngineClient, EngineError
from services.worker_agent.load_stream import LoadStream
from services.worker_agent.prefill_calls import SglangCalls, VllmCalls, prefill_calls
from services.worker_agent.process import AgentProcess
from services.worker_agent.replica_prefiller import ReplicaPrefiller
from services.worker_agent.settings import (
    EngineSettings,
    ReplicaSettings,
    SelfTestSettings,
    StreamSettings,
    WorkerAgentSettings,
)
from tests.models.agent_fleets import SALT, agent_plan
from tests.models.fleet_authority import FleetAuthority
from tests.services.agent_doubles import ListeningEdge, NaiveUnit, eventually, served_edge, served_unit
from tests.services.mock_engine_rig import Rig, running

GROUP = "tenants"
PAGE = 16
STEP = 512
PREFIX = np.arange(1_000, 1_000 + 4 * STEP, dtype=np.int32)
OTHERS = list(range(100, 164))


def replica(
    number: int = 1, tokens: Any = PREFIX, deadline_ms: int = 20_000, group: str = GROUP
) -> ReplicaPrefill:
    return ReplicaPrefill(number, group, np.asarray(tokens, dtype=np.int32), deadline_ms)


class AskingEdge(ListeningEdge):
    """Asks for what is put into `to_ask`, keeps the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.to_ask: asyncio.Queue[LoadReply] = asyncio.Queue()
        self.takes: list[bool] = []
        self.answers: list[PrefillAnswer] = []

    async def report_load(
        self, messages: AsyncIterator[AgentLoad], context: Context
    ) -> AsyncIterator[LoadReply]:
        first = await anext(messages)
        self.takes.append(first.takes_prefills)
        self._take(first)
        yield Acknowledgement(first.sequence)
        reading = asyncio.create_task(self._read(messages))
        try:
            while True:
                yield await self.to_ask.get()
        finally:
            reading.cancel()

    async def _read(self, messages: AsyncIterator[AgentLoad]) -> None:
        async for message in messages:
            self._take(message)

    def _take(self, message: AgentLoad) -> None:
        self.loads.append(message.load)
        self.answers += message.prefill_answers


@dataclass
class Scene:
    rig: Rig
    edge: AskingEdge
    unit: NaiveUnit
    plan: Plan
    process: AgentProcess

    def keys(self, tokens: Any = PREFIX) -> set[int]:
        """At every registered length."""
        prompt = np.asarray(tokens, dtype=np.int32)
        return set(
            prefix_keys(namespace(self.plan.model, SALT), prompt, registered_lengths(self.plan)).tolist()
        )

    async def told(self, *answers: tuple[int, PrefillOutcome]) -> None:
        """Wait for these and no other."""
        await eventually(lambda: len(self.edge.answers) >= len(answers), f"told {answers}", 30.0)
        assert [(answer.id, answer.outcome) for answer in self.edge.answers] == list(answers)

    async def counters(self) -> dict[str, Any]:
        """What the engine has done."""
        info: dict[str, Any] = (await self.rig.client.get("/server_info")).json()["kvcompass_mock"]
        return info

    async def metrics(self) -> str:
        async with httpx.AsyncClient() as client:
            return (await client.get(f"http://127.0.0.1:{self.process.ops.port}/metrics")).text


@asynccontextmanager
async def scene(
    replicas: dict[str, Any] | None = None, context_length: int = 4_096, **engine: Any
) -> AsyncIterator[Scene]:
    """An agent beside the double, with an edge that asks."""
    edge, unit = AskingEdge(), NaiveUnit()
    async with (
        running(page_size=PAGE, fault_switches=True, **engine) as rig,
        served_unit(unit) as unit_address,
        served_edge(edge) as edge_address,
    ):
        plan = agent_plan(
            block_size=PAGE,
            quantum=32,
            context_length=context_length,
            shards=1,
            engine_url=str(rig.client.base_url).rstrip("/"),
            events=rig.server.event_endpoint,
            replay=rig.server.replay_endpoint,
            edge_grpc=edge_address,
            unit_addresses=(unit_address,),
        )
        settings = WorkerAgentSettings(
            plan="",
            workers=["us-0"],
            engine=EngineSettings(load_period_ms=20),
            self_test=SelfTestSettings(enabled=False),
            replica=ReplicaSettings(**{"step_tokens": STEP, **(replicas or {})}),
        )
        process = AgentProcess(settings, plan, Path())
        running_process = asyncio.create_task(process.run())
        try:
            await eventually(lambda: process.ops._health().ready, "ready", 30.0)
            yield Scene(rig, edge, unit, plan, process)
        finally:
            running_process.cancel()
            with suppress(asyncio.CancelledError):
                await running_process


@pytest.mark.parametrize("profile", ["0.5.10", "0.5.23"])
async def test_a_replica_is_stored_without_a_token_generated_and_is_found(profile: str) -> None:
    async with scene(event_profile=profile) as at_work:
        at_work.edge.to_ask.put_nowait(replica())
        await at_work.told((1, PrefillOutcome.DONE))
        assert at_work.edge.answers[0].tokens == len(PREFIX)
        await eventually(lambda: set(at_work.unit.held) == at_work.keys(), "found")
        done = await at_work.counters()
        assert (done["generated_tokens"], done["resident_blocks"]) == (0, len(PREFIX) // PAGE)
        assert done["cached_tokens"] == (0 + 1 + 2 + 3) * STEP, "each step reused the one before"
        text = await at_work.metrics()
        assert 'replica_prefills_total{outcome="done",worker="us-0"} 1.0' in text
        assert f'replica_tokens_total{{worker="us-0"}} {float(len(PREFIX))}' in text
        health = at_work.process.ops._health().details["us-0"]["replicas"]
        assert health == {"under_way": False, "queued": 0, "tokens": len(PREFIX), "ended": {"done": 1}}


async def test_requests_that_come_stop_it_and_are_served() -> None:
    """A step takes 3.4 s of the double's here: who comes meanwhile does not wait for its end."""
    async with scene(time_scale=100.0) as at_work:
        at_work.edge.to_ask.put_nowait(replica())
        await at_work.rig.until_running(1)
        await asyncio.sleep(0.3)  # until a request that waits cannot be the replica's own
        answered = await asyncio.wait_for(at_work.rig.generate(OTHERS, tokens=1), 30)
        assert answered.status_code == 200
        await at_work.told((1, PrefillOutcome.ABORTED))
        assert at_work.edge.answers[0].tokens == 0, "not even its first step went to its end"
        done = await at_work.counters()
        assert done["resident_blocks"] < len(PREFIX) // PAGE


async def test_closing_down_leaves_nothing_under_way() -> None:
    async with scene(time_scale=100.0) as at_work:
        at_work.edge.to_ask.put_nowait(replica())
        await at_work.rig.until_running(1)
        at_work.process._leave(at_work.process.workers[0])
        await at_work.rig.until_running(0)


async def test_one_waits_for_an_idle_worker_and_is_refused_as_busy_in_the_end() -> None:
    async with scene(replicas={"running_most": 0}) as at_work:
        answering = asyncio.create_task(at_work.rig.generate(OTHERS, tokens=60_000))
        await at_work.rig.until_running(1)
        await eventually(lambda: at_work.edge.loads[-1].running == 1, "the agent knows")
        at_work.edge.to_ask.put_nowait(replica(1, deadline_ms=300))
        at_work.edge.to_ask.put_nowait(replica(2))
        await at_work.told((1, PrefillOutcome.BUSY))
        await at_work.rig.client.post("/abort_request", json={"abort_all": True})
        await answering
        await at_work.told((1, PrefillOutcome.BUSY), (2, PrefillOutcome.DONE))


async def test_only_free_memory_is_taken_unless_it_may_evict() -> None:
    small: dict[str, Any] = {"cache_tokens": 3_200}
    first, second = PREFIX, PREFIX + 5_000
    async with scene(**small) as at_work:
        at_work.edge.to_ask.put_nowait(replica(1, first))
        await at_work.told((1, PrefillOutcome.DONE))
        at_work.edge.to_ask.put_nowait(replica(2, second))
        await at_work.told((1, PrefillOutcome.DONE), (2, PrefillOutcome.NO_ROOM))
        await eventually(lambda: set(at_work.unit.held) == at_work.keys(first), "nothing was evicted")
    async with scene({"may_evict": True}, **small) as at_work:
        for number, tokens in ((1, first), (2, second)):
            at_work.edge.to_ask.put_nowait(replica(number, tokens))
        await at_work.told((1, PrefillOutcome.DONE), (2, PrefillOutcome.DONE))
        await eventually(lambda: set(at_work.unit.held) >= at_work.keys(second), "the second is held")


async def test_what_cannot_be_is_refused_at_once_each_for_its_reason() -> None:
    async with scene(context_length=1_024) as at_work:
        at_work.edge.to_ask.put_nowait(replica(1, PREFIX[:64], group="others"))
        at_work.edge.to_ask.put_nowait(replica(2, PREFIX[:1_024]))
        await at_work.told((1, PrefillOutcome.FOREIGN_GROUP), (2, PrefillOutcome.TOO_LONG))
        await at_work.rig.faults(status_500=1.0)
        at_work.edge.to_ask.put_nowait(replica(3, PREFIX[:64]))
        await eventually(lambda: len(at_work.edge.answers) == 3, "refused by the engine")
        assert at_work.edge.answers[-1] == PrefillAnswer(3, PrefillOutcome.FAILED, 0)
        assert (await at_work.counters())["prompt_tokens"] == 0
        assert at_work.edge.loads[-1].state is WorkerState.READY, "a replica's failure is nobody else's"


async def test_the_queue_is_bounded() -> None:
    async with scene({"queued": 2}, time_scale=100.0) as at_work:
        for number in range(1, 6):
            at_work.edge.to_ask.put_nowait(replica(number, deadline_ms=1_500))
        await eventually(lambda: len(at_work.edge.answers) == 5, "all answered", 30.0)
        told = {answer.id: answer.outcome for answer in at_work.edge.answers}
        assert told[1] is PrefillOutcome.EXPIRED
        assert [told[number] for number in (4, 5)] == [PrefillOutcome.QUEUE_FULL] * 2
        await at_work.rig.until_running(0)


async def test_an_agent_that_takes_none_says_so_and_is_not_moved() -> None:
    async with scene({"enabled": False}) as at_work:
        assert at_work.edge.takes == [False]
        at_work.edge.to_ask.put_nowait(replica())
        stream = at_work.process.workers[0].load_streams[0]
        await eventually(lambda: "unasked" in stream.problem, "the stream ends")
        await eventually(lambda: not stream.problem, "and comes again")
        assert (await at_work.counters())["prompt_tokens"] == 0
        assert at_work.process.ops._health().details["us-0"]["replicas"] is None


async def test_what_an_edge_says_before_it_acknowledged_is_not_obeyed() -> None:
    class Hasty(AskingEdge):
        async def report_load(
            self, messages: AsyncIterator[AgentLoad], context: Context
        ) -> AsyncIterator[LoadReply]:
            await anext(messages)
            yield replica()
            await asyncio.sleep(30)

    async with scene() as at_work:
        worker = at_work.process.workers[0]
        async with served_edge(Hasty()) as address:
            stream = worker._load_stream(at_work.plan.edges[0], 1)
            stream._channel = worker._channel(address)
            running_stream = asyncio.create_task(stream.run())
            stream.wake()
            await eventually(lambda: "no acknowledgement" in stream.problem, "refused")
            running_stream.cancel()
            await asyncio.gather(running_stream, return_exceptions=True)
        assert worker.replicas is not None
        assert (worker.replicas.role.queued, worker.replicas.role.outcomes.total()) == (0, 0)


async def test_an_edge_without_a_certificate_of_the_fleet_cannot_ask(tmp_path: Path) -> None:
    ours, theirs = (FleetAuthority(tmp_path / name).tls("edge") for name in ("ours", "theirs"))
    asked_for: list[ReplicaPrefill] = []

    async def ask_as(tls: TlsSettings, holds: Callable[[LoadStream], bool]) -> list[bool]:
        """An edge with this certificate asks until something holds; returns the streams that reached it."""
        edge = AskingEdge()
        edge.to_ask.put_nowait(replica())
        server, port = await serve_grpc(partial(register_load_exchange, service=edge), "127.0.0.1:0", tls)
        async with Dialer({}, ours).channel(f"127.0.0.1:{port}") as channel:
            stream = LoadStream(
                channel,
                edge_id="edge-us",
                worker_id="us-0",
                epoch=1,
                layout={},
                plan_version=1,
                load=lambda: WorkerLoad("us-0", WorkerState.READY, 0.0),
                settings=StreamSettings(answer_timeout_ms=3_000),
                on_prefill=lambda _edge, request: asked_for.append(request),
            )
            running_stream = asyncio.create_task(stream.run())
            stream.wake()
            await eventually(lambda: holds(stream), f"{stream.problem}, {len(asked_for)} asked for")
            running_stream.cancel()
            await asyncio.gather(running_stream, return_exceptions=True)
        await server.stop(0)
        return edge.takes

    assert await ask_as(theirs, lambda stream: "UNAVAILABLE" in stream.problem) == []
    assert asked_for == []
    assert await ask_as(ours, lambda _: len(asked_for) == 1) == [True]


# --- what engines are asked -------------------------------------------------------------------------


class ScriptedRoutes:
    """An engine's HTTP face: answers by path, and what was asked."""

    def __init__(self, answers: dict[str, tuple[int, Any]]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, Any, dict[str, str]]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.asked.append((scope["path"], orjson.loads(body) if body else None, headers))
        status, answer = self.answers.get(scope["path"], (404, None))
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": orjson.dumps(answer)})


@asynccontextmanager
async def asked(answers: dict[str, tuple[int, Any]]) -> AsyncIterator[tuple[ScriptedRoutes, EngineClient]]:
    routes = ScriptedRoutes(answers)
    server = HttpServer(routes, "127.0.0.1:0")
    await server.start()
    async with EngineClient(f"http://127.0.0.1:{server.port}", api_key="", timeout_ms=2_000) as client:
        yield routes, client
    await server.stop(drain_s=0.0)


def ended(kind: str) -> tuple[int, Any]:
    return 200, {"text": "", "meta_info": {"finish_reason": {"type": kind}, "completion_tokens": 0}}


@pytest.mark.parametrize(
    ("info", "priority"),
    [
        ({}, None),
        ({"enable_priority_scheduling": False, "schedule_low_priority_values_first": True}, None),
        ({"enable_priority_scheduling": "yes", "schedule_low_priority_values_first": []}, None),
        ({"enable_priority_scheduling": True, "schedule_low_priority_values_first": {"a": 1}}, -(2**63)),
        ({"enable_priority_scheduling": True}, -(2**63)),
        ({"enable_priority_scheduling": True, "schedule_low_priority_values_first": True}, 2**63 - 1),
    ],
    ids=str,
)
async def test_sglang_is_asked_at_its_lowest_priority_where_it_has_any(
    info: dict[str, Any], priority: int | None
) -> None:
    async with asked({"/server_info": (200, info), "/generate": ended("length")}) as (routes, client):
        calls = prefill_calls("sglang", client, "m", 3)
        await calls.prepare()
        await calls.call(PREFIX[:3]).run(2.0)
    path, body, _ = routes.asked[-1]
    rid = body.pop("rid")
    assert rid.startswith("kvcompass-replica-")
    wanted = {
        "input_ids": [1_000, 1_001, 1_002],
        "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
        "routed_dp_rank": 3,
    }
    assert (path, body) == ("/generate", wanted if priority is None else {**wanted, "priority": priority})


async def test_one_that_the_engine_aborted_by_itself_is_not_done() -> None:
    async with asked({"/generate": ended("abort"), "/abort_request": (200, None)}) as (routes, client):
        call = SglangCalls(client, None).call(PREFIX[:3])
        with pytest.raises(EngineError, match="aborted"):
            await call.run(2.0)
        await call.abort()
    assert routes.asked[1][:2] == ("/abort_request", {"rid": routes.asked[0][1]["rid"]})


async def test_vllm_generates_one_token_because_it_refuses_none() -> None:
    async with asked({"/v1/completions": (200, {"choices": []})}) as (routes, client):
        calls = prefill_calls("vllm", client, "m", 1)
        assert isinstance(calls, VllmCalls)
        await calls.prepare()
        await calls.call(PREFIX[:2]).run(2.0)
    ((path, body, headers),) = routes.asked
    assert (path, body) == (
        "/v1/completions",
        {"model": "m", "prompt": [1_000, 1_001], "max_tokens": 1, "temperature": 0.0},
    )
    assert headers["x-data-parallel-rank"] == "1"


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
@pytest.mark.parametrize("status", [400, 413, 422])
async def test_what_an_engine_says_of_a_prompt_that_it_denies_is_not_repeated(kind: str, status: int) -> None:
    """It goes into a log, and FastAPI's 422 has the input in it."""
    denied = (status, {"detail": [{"input": {"input_ids": [1_000, 1_001]}}]})
    async with asked({"/generate": denied, "/v1/completions": denied}) as (_, client):
        with pytest.raises(DeniedError) as caught:
            await prefill_calls(kind, client, "m", None).call(PREFIX[:2]).run(2.0)
    assert str(caught.value) == f"{caught.value.field} answers {status}"
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


async def test_each_engine_process_is_asked_once_what_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scene() as at_work:
        worker, prepared = at_work.process.workers[0], []
        assert worker.replicas is not None
        calls = worker.replicas._calls
        prepare = calls.prepare

        async def counted() -> None:
            prepared.append(worker.agent.engine_restarts)
            await prepare()

        monkeypatch.setattr(calls, "prepare", counted)
        outcomes: list[tuple[int, PrefillOutcome]] = []
        for number in (1, 2, 3):
            if number == 3:
                worker.agent.engine_restarts += 1
            at_work.edge.to_ask.put_nowait(replica(number))
            outcomes.append((number, PrefillOutcome.DONE))
            await at_work.told(*outcomes)
        assert prepared == [0, 1]


def test_edges_cannot_fill_the_log() -> None:
    """A refusal costs an edge nothing, so it may ask for thousands."""
    clock, told = [0], 0

    def answered(_edge: str, _answer: PrefillAnswer) -> None:
        nonlocal told
        told += 1

    with capture_logs() as lines:
        prefiller = ReplicaPrefiller(
            WorkerAgent(agent_plan(), "us-0", 1),
            prefill_calls("vllm", EngineClient("http://h:1", api_key="", timeout_ms=1), "m", None),
            PrefillRules(tokens_most=64),
            answer=answered,
            now_us=lambda: clock[0],
        )
        for number in range(1_000):
            prefiller.ask("edge-us", replica(number, group="others"))
        prefiller.ask("edge-us", replica(1_000))
        clock[0] = 1_000_000
        prefiller.ask("edge-us", replica(1_001, group="others"))
    assert told == 1_002
    assert [(line["event"], line["left_out"]) for line in lines] == [
        ("replica foreign_group", 0),
        ("replica too_long", 0),
        ("replica foreign_group", 999),
    ]
