"""A worker agent beside the engine double: what it computes and drops is what a unit hears of."""

import asyncio
from contextlib import suppress
from pathlib import Path

import httpx
import numpy as np

from kvcompass.keys import namespace, prefix_keys
from kvcompass.keys.digest import holdings_digest
from kvcompass.levels import registered_lengths
from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from services.worker_agent.process import AgentProcess
from services.worker_agent.settings import EngineSettings, WorkerAgentSettings
from tests.models.agent_fleets import SALT, agent_plan
from tests.services.agent_doubles import ListeningEdge, NaiveUnit, eventually, served_edge, served_unit

PROMPT = list(range(300, 620))


async def test_prompts_are_found_and_a_flush_withdraws_them() -> None:
    settings = MockSettings(
        address="127.0.0.1:0",
        model="m",
        page_size=16,
        time_scale=0.01,
        event_endpoint="tcp://127.0.0.1:*",
        replay_endpoint="tcp://127.0.0.1:*",
    )
    engine = MockServer(settings, PromptEncoder.load())
    await engine.start()
    url = f"http://127.0.0.1:{engine.port}"
    units, edge = [NaiveUnit(), NaiveUnit()], ListeningEdge()
    async with (
        served_unit(units[0]) as first,
        served_unit(units[1]) as second,
        served_edge(edge) as edge_address,
        httpx.AsyncClient(base_url=url) as client,
    ):
        plan = agent_plan(
            block_size=16,
            quantum=32,
            context_length=4_096,
            engine_url=url,
            events=engine.event_endpoint,
            replay=engine.replay_endpoint,
            edge_grpc=edge_address,
            unit_addresses=(first, second),
        )
        prompt = np.array(PROMPT, dtype=np.int32)
        wanted = set(prefix_keys(namespace(plan.model, SALT), prompt, registered_lengths(plan)).tolist())
        body = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 0}}
        (await client.post("/generate", json=body)).raise_for_status()
        process = AgentProcess(
            WorkerAgentSettings(plan="", workers=["us-0"], engine=EngineSettings(load_period_ms=20)),
            plan,
            Path(),
        )
        running = asyncio.create_task(process.run())
        try:
            await eventually(lambda: process.ops._health().ready, "ready")
            await eventually(lambda: set(units[0].held) | set(units[1].held) == wanted, "the past is known")
            assert units[0].held and units[1].held, "each unit has its own shard"
            told = process.ops._health().details["us-0"]
            for shard, unit in enumerate(units):
                keys = np.array([*unit.held], np.uint64)
                tiers = np.array([*unit.held.values()], np.uint8)
                digest = f"{holdings_digest(keys, tiers):016x}"
                assert told["holdings"][str(shard)] == {"keys": len(unit.held), "digest": digest}
            info = (await client.get("/server_info")).json()["kvcompass_mock"]
            assert info["resident_blocks"] == told["blocks"] == len(PROMPT) // 16
            (await client.post("/flush_cache")).raise_for_status()
            await eventually(lambda: not units[0].held and not units[1].held, "the flush is known")
            await eventually(lambda: bool(edge.loads) and edge.loads[-1].max_tokens > 0, "the load is told")
            metrics = (await client.get(f"http://127.0.0.1:{process.ops.port}/metrics")).text
            assert 'kvcompass_worker_agent_state{state="exact",worker="us-0"} 1.0' in metrics
            assert 'kvcompass_worker_agent_load_source{source="v1_loads",worker="us-0"} 1.0' in metrics
            assert 'kvcompass_worker_agent_load_source{source="vllm_metrics",worker="us-0"} 0.0' in metrics
            assert told["load_source"] == "v1_loads"
            assert "prefill_rate" in told["load_lacks"]
            assert 'kvcompass_worker_agent_clears_total{worker="us-0"} 2.0' in metrics
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await engine.stop(0.1)
