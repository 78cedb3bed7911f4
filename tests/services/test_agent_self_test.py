"""The self-test of an agent, through a running edge and the engine double: who reads otherwise is refused."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

import kvcompass.self_test.state as rule
import services.worker_agent.self_tester as self_tester
from kvcompass.plan.model import Plan
from kvcompass.roles.agent_state import AgentState
from kvcompass.self_test.probe import ProbeMessage, probe_messages
from kvcompass.self_test.state import SelfTestResult, Untestable
from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from services.worker_agent.process import AgentProcess
from services.worker_agent.settings import EngineSettings, SelfTestSettings, WorkerAgentSettings
from tests.services.agent_doubles import ListeningEdge, eventually, served_edge
from tests.services.edge_fleet import MODEL, fleet

ENCODER = PromptEncoder.load()
PATIENCE_S = 40.0


@dataclass
class Scene:
    engine: MockServer
    process: AgentProcess
    client: httpx.AsyncClient

    @property
    def state(self) -> AgentState:
        return self.process.workers[0].agent.state

    @property
    def told(self) -> dict[str, Any]:
        """What `/health` says of the test."""
        told: dict[str, Any] = self.process.ops._health().details["us-0"]["self_test"]
        return told

    async def results(self, result: SelfTestResult) -> None:
        test = self.process.workers[0].self_test.test
        await eventually(lambda: test.state.result is result, f"{result}, but {self.told}", PATIENCE_S)

    async def faults(self, **faults: Any) -> None:
        (await self.client.put("/kvcompass_mock/faults", json=faults)).raise_for_status()

    async def metric(self, result: str) -> float:
        page = (
            await httpx.AsyncClient(trust_env=False).get(f"http://127.0.0.1:{self.process.ops.port}/metrics")
        ).text
        name = f'kvcompass_worker_agent_self_test{{result="{result}",worker="us-0"}} '
        return float(next(line for line in page.splitlines() if line.startswith(name)).removeprefix(name))


@asynccontextmanager
async def beside(
    plan: Plan, *, enabled: bool = True, hears: MockServer | None = None, **mock: Any
) -> AsyncIterator[Scene]:
    """An agent for worker us-0 of a plan, and an engine double as that worker.

    `hears`: whose events it is told to listen to, the engine's own if None.
    """
    settings = {
        "address": "127.0.0.1:0",
        "model": MODEL,
        "page_size": plan.model.block_size,
        "time_scale": 0.01,
        "event_endpoint": "tcp://127.0.0.1:*",
        "replay_endpoint": "tcp://127.0.0.1:*",
        "fault_switches": True,
    }
    engine = MockServer(MockSettings(**{**settings, **mock}), ENCODER)
    await engine.start()
    url = f"http://127.0.0.1:{engine.port}"
    told = hears or engine
    worker = replace(plan.workers[0], url=url, events=told.event_endpoint, replay=told.replay_endpoint)
    process = AgentProcess(
        WorkerAgentSettings(
            plan="",
            workers=[worker.id],
            engine=EngineSettings(load_period_ms=20),
            self_test=SelfTestSettings(enabled=enabled, hearing_ms=2_000),
        ),
        replace(plan, workers=(worker, *plan.workers[1:])),
        Path(),
    )
    running = asyncio.create_task(process.run())
    try:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as client:
            yield Scene(engine, process, client)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await engine.stop(0.1)


@asynccontextmanager
async def at_an_edge(monkeypatch: Any, **options: Any) -> AsyncIterator[Scene]:
    """With a running edge of the region."""
    async with fleet(monkeypatch, workers=1) as running, beside(running.plan, **options) as scene:
        yield scene


@pytest.mark.parametrize("version", ["0.5.10", "0.5.23"])
async def test_an_engine_that_reads_as_the_edge_does_passes_and_serves(
    monkeypatch: Any, version: Any
) -> None:
    async with at_an_edge(monkeypatch, page_size=16, event_profile=version) as scene:
        await scene.results(SelfTestResult.PASSED)
        assert scene.state is AgentState.EXACT
        assert scene.told["agreed_tokens"] >= 4 * 64
        assert scene.told["more_at_the_end"] == 0
        assert (await scene.metric("passed"), await scene.metric("refused")) == (1, 0)
        held = len(scene.process.workers[0].agent.holdings)
        await scene.faults(restart=True)
        tests = scene.told["tests"]
        await eventually(lambda: scene.told["tests"] > tests, "tested again", PATIENCE_S)
        await scene.results(SelfTestResult.PASSED)
        await eventually(lambda: len(scene.process.workers[0].agent.holdings) == held, "learned anew")


@pytest.mark.parametrize(
    ("drift", "field", "says"),
    [
        ("chat_template", "chat_template", "another chat template"),
        ("tokenizer", "tokenizer", "another tokenizer"),
        ("bos", "chat_template", "the engine has 1 more before the first message"),
    ],
)
async def test_an_engine_that_reads_otherwise_is_refused_until_it_is_mended(
    monkeypatch: Any, drift: str, field: str, says: str
) -> None:
    monkeypatch.setattr(rule, "_SETTLED_PAUSE_MS", 100)
    async with at_an_edge(monkeypatch, page_size=16) as scene:
        await scene.results(SelfTestResult.PASSED)
        await scene.faults(chat_drift=drift, restart=True)
        await scene.results(SelfTestResult.REFUSED)
        agent = scene.process.workers[0].agent
        assert scene.state is AgentState.REFUSED
        assert len(agent.holdings) == 0, "nobody is sent there for what it holds"
        assert agent.refusal is not None
        assert agent.refusal.field == field
        assert says in agent.refusal.message
        assert scene.told["difference"]["cause"] == drift
        assert ">'<|im_start|>'<" in agent.refusal.message or drift == "tokenizer"
        assert any(says in reason for reason in scene.process.ops._health().reasons)
        assert await scene.metric("refused") == 1

        await scene.faults()
        await eventually(lambda: scene.state is AgentState.EXACT, "readmitted", PATIENCE_S)
        assert len(agent.holdings) > 0, "what it held all the while is known"
        info = (await scene.client.get("/server_info")).json()["kvcompass_mock"]
        await eventually(lambda: agent.holdings.blocks >= info["resident_blocks"], "all of it is known")


@pytest.mark.parametrize("busy", [True, False])
async def test_events_of_another_engine_refuse_the_worker_until_they_are_its_own(
    monkeypatch: Any, busy: bool
) -> None:
    monkeypatch.setattr(rule, "_SETTLED_PAUSE_MS", 100)
    other = MockServer(
        MockSettings(
            address="127.0.0.1:0",
            model=MODEL,
            time_scale=0.01,
            event_endpoint="tcp://127.0.0.1:*",
            replay_endpoint="tcp://127.0.0.1:*",
        ),
        ENCODER,
    )
    await other.start()
    try:
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{other.port}", trust_env=False) as others,
            at_an_edge(monkeypatch, hears=other) as scene,
        ):

            async def ask(number: int) -> None:
                said = [{"role": "user", "content": f"{number} " + "hello there " * 300}]
                body = {"model": MODEL, "max_tokens": 1, "messages": said}
                (await others.post("/v1/chat/completions", json=body)).raise_for_status()

            await ask(0)
            agent, number = scene.process.workers[0].agent, 0
            while agent.refusal is None and number < 200:
                number += 1
                if busy:
                    await ask(number)
                await asyncio.sleep(0.2)
            assert agent.refusal is not None, scene.told
            assert agent.refusal.field == "events"
            assert other.event_endpoint in agent.refusal.message
            assert agent.worker.url in agent.refusal.message
            assert scene.state is AgentState.REFUSED
            assert len(agent.holdings) == 0
            assert (scene.told["result"], "is not what" in scene.told["reason"]) == ("refused", True)

            engine = scene.engine
            agent.worker = replace(agent.worker, events=engine.event_endpoint, replay=engine.replay_endpoint)
            scene.process.workers[0].follower.attach_anew()
            await scene.results(SelfTestResult.PASSED)
            await eventually(lambda: scene.state is AgentState.EXACT, "readmitted", PATIENCE_S)
    finally:
        await other.stop(0.1)


async def test_a_probe_has_blocks_of_the_engines_own_pages(monkeypatch: Any) -> None:
    sizes: list[int] = []

    def recorded(nonce: str, block_size: int) -> tuple[ProbeMessage, ...]:
        sizes.append(block_size)
        return probe_messages(nonce, block_size)

    monkeypatch.setattr(self_tester, "probe_messages", recorded)
    async with at_an_edge(monkeypatch, page_size=16) as scene:
        await scene.results(SelfTestResult.PASSED)
        assert set(sizes) == {16}
        assert scene.process.workers[0].agent.holdings.block_size == 16


async def test_an_engine_that_serves_another_model_is_refused(monkeypatch: Any) -> None:
    async with at_an_edge(monkeypatch, model="other") as scene:
        await scene.results(SelfTestResult.REFUSED)
        assert scene.process.workers[0].agent.refusal is not None
        assert scene.process.workers[0].agent.refusal.field == "model"
        assert "serves other, not model" in scene.told["reason"]


async def test_it_can_be_switched_off(monkeypatch: Any) -> None:
    async with at_an_edge(monkeypatch, enabled=False) as scene:
        await eventually(lambda: scene.state is AgentState.EXACT, "attached")
        assert scene.told["result"] == "off"
        assert await scene.metric("off") == 1


async def test_edges_of_the_version_before_mean_not_tested_and_the_engine_is_not_asked(
    monkeypatch: Any,
) -> None:
    async with served_edge(ListeningEdge()) as address, fleet(monkeypatch, regions=()) as running:
        edges = tuple(
            replace(edge, grpc_address=address) for edge in running.plan.edges if edge.region == "us"
        )
        others = tuple(edge for edge in running.plan.edges if edge.region != "us")
        async with beside(replace(running.plan, edges=(*edges, *others))) as scene:
            await scene.results(SelfTestResult.NOT_TESTED)
            assert scene.told["reason"] == Untestable.OLD_EDGES
            assert scene.state is AgentState.EXACT
            info = (await scene.client.get("/server_info")).json()["kvcompass_mock"]
            assert info["prompt_tokens"] == 0


async def test_while_no_edge_answers_it_is_pending_and_the_worker_serves(monkeypatch: Any) -> None:
    async with fleet(monkeypatch, regions=()) as running, beside(running.plan) as scene:
        await eventually(lambda: "no edge of the region" in scene.told["reason"], "asked", PATIENCE_S)
        assert scene.told["result"] == "pending"
        assert scene.state is AgentState.EXACT


async def test_an_engine_whose_events_do_not_come_is_not_tested(monkeypatch: Any) -> None:
    async with at_an_edge(monkeypatch, event_endpoint="", replay_endpoint="") as scene:
        await scene.results(SelfTestResult.NOT_TESTED)
        assert scene.told["reason"].startswith(Untestable.NO_EVENTS)
        assert "--kv-events-config" in scene.told["reason"]


async def test_an_engine_that_denies_the_chat_is_not_tested(monkeypatch: Any) -> None:
    async with at_an_edge(monkeypatch, context_length=128) as scene:
        await scene.results(SelfTestResult.NOT_TESTED)
        assert scene.told["reason"].startswith(Untestable.PROBE_DENIED)
        assert "context length" in scene.told["reason"]
        assert scene.state is AgentState.EXACT


async def test_a_worker_that_is_refused_for_its_pages_is_not_tested(monkeypatch: Any) -> None:
    async with at_an_edge(monkeypatch, page_size=24) as scene:
        await scene.results(SelfTestResult.NOT_TESTED)
        assert scene.told["reason"] == Untestable.REFUSED_BEFORE


async def test_lost_batches_refuse_nobody_and_it_is_tested_again(monkeypatch: Any) -> None:
    async with at_an_edge(monkeypatch, page_size=16) as scene:
        await scene.faults(drop_events={"share": 1.0, "kept": False})
        await eventually(lambda: "not heard" in scene.told["reason"], "unheard", PATIENCE_S)
        assert scene.told["result"] == "pending"
        await scene.faults()
        await scene.results(SelfTestResult.PASSED)
