"""An engine of another kind than the settings say is refused: its events would be read as another's."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from kvcompass.roles.agent_state import AgentState
from services.runtime.http_server import HttpServer
from services.worker_agent.process import AgentProcess
from services.worker_agent.settings import EngineSettings, SelfTestSettings, WorkerAgentSettings
from tests.models.agent_fleets import agent_plan
from tests.services.agent_doubles import eventually
from tests.services.mock_engine_rig import running
from tests.services.test_agent_metrics_page import sglang_page, vllm_page

Kind = Literal["sglang", "vllm"]


class Pages:
    """An engine that has pages of metrics and nothing else."""

    def __init__(self, page: bytes) -> None:
        self.page = page

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        found = scope["path"] == "/metrics"
        await send({"type": "http.response.start", "status": 200 if found else 404, "headers": []})
        await send({"type": "http.response.body", "body": self.page if found else b""})


def process_of(
    kind: Kind,
    url: str,
    events: str = "tcp://127.0.0.1:1",
    replay: str = "",
    holdings: Literal["events", "predicted"] = "events",
) -> AgentProcess:
    settings = WorkerAgentSettings(
        plan="",
        workers=["us-0"],
        engine=EngineSettings(kind=kind, load_period_ms=20, metrics_period_ms=20, event_timeout_ms=300),
        self_test=SelfTestSettings(enabled=False),
    )
    plan = agent_plan(
        block_size=16, quantum=32, context_length=4_096, engine_url=url, events=events, replay=replay
    )
    worker = replace(plan.workers[0], holdings=holdings)
    return AgentProcess(settings, replace(plan, workers=(worker,)), Path())


SGLANG, VLLM = sglang_page(num_running_reqs=1.0, num_queue_reqs=0.0), vllm_page()


@pytest.mark.parametrize(
    ("kind", "page", "holdings", "is_refused"),
    [
        ("sglang", VLLM, "events", True),
        ("vllm", VLLM, "events", False),
        ("vllm", SGLANG, "events", True),
        ("sglang", SGLANG, "events", False),
        ("sglang", VLLM, "predicted", False),
    ],
)
async def test_the_kind_is_told_by_whose_metrics_it_has(
    kind: Kind, page: bytes, holdings: Literal["events", "predicted"], is_refused: bool
) -> None:
    server = HttpServer(Pages(page), "127.0.0.1:0")
    await server.start()
    process = process_of(kind, f"http://127.0.0.1:{server.port}", holdings=holdings)
    agent = process.workers[0].agent
    serving = asyncio.create_task(process.run())
    try:
        await eventually(lambda: process.workers[0].loads.kind is not None, "a load came")
        await asyncio.sleep(0.05)
        assert (agent.state is AgentState.REFUSED) is is_refused
        if agent.refusal is not None:
            assert agent.refusal.field == "engine.kind"
            other = "vllm" if kind == "sglang" else "sglang"
            assert f'set engine.kind = "{other}"' in agent.refusal.message
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving
        await server.stop(drain_s=0.0)


async def test_an_engine_that_is_replaced_by_the_right_one_is_learned_from_the_start() -> None:
    """What it told before was not taken in, and is asked for again."""
    no_routes = ("/v1/loads", "/get_load")
    async with running(page_size=16, routes_off=no_routes) as rig:
        routes = rig.server._app._routes
        metrics = {key: handler for key, handler in routes.items() if key[1].startswith("/metrics")}
        routes.update(dict.fromkeys(metrics, Pages(VLLM)))
        process = process_of(
            "sglang",
            str(rig.client.base_url).rstrip("/"),
            rig.server.event_endpoint,
            rig.server.replay_endpoint,
        )
        agent = process.workers[0].agent
        serving = asyncio.create_task(process.run())
        try:
            await eventually(lambda: agent.state is AgentState.REFUSED, "refused")
            await rig.generate(list(range(300, 620)))
            await asyncio.sleep(0.1)
            assert agent.holdings.blocks == 0
            routes.update(metrics)
            process.workers[0].loads.reconsider()
            await eventually(lambda: agent.state is AgentState.EXACT, f"served: {agent.state}")
            await eventually(lambda: agent.holdings.blocks == 320 // 16, "its blocks are known")
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving
