"""The way of a replica: an edge asks, the engine prefills, a unit hears of it, the edge finds it."""

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels.query_plan import query_plan
from kvcompass.plan.model import Edge
from kvcompass.roles.messages import PrefillOutcome, ReplicaPrefill
from kvcompass.routing.decision import Decision
from services.edge.composition import EdgeService
from services.edge.settings import EdgeSettings, Timeouts
from services.runtime.epoch import now_us
from services.runtime.lifecycle import Lifecycle
from services.worker_agent.process import AgentProcess
from services.worker_agent.settings import EngineSettings, SelfTestSettings, WorkerAgentSettings
from tests.models.agent_fleets import SALT, agent_plan
from tests.models.ports import free_address
from tests.models.replication_service import served
from tests.services.agent_doubles import eventually
from tests.services.edge_fleet import PEER_KEY
from tests.services.mock_engine_rig import running

PREFIX = np.arange(2_000, 2_000 + 640, dtype=np.int32)
GROUP = "tenants"


async def test_a_replica_that_an_edge_asks_for_is_found_by_its_own_lookups() -> None:
    async with AsyncExitStack() as stack:
        rig = await stack.enter_async_context(running(page_size=16))
        draft = agent_plan(
            block_size=16,
            quantum=32,
            context_length=4_096,
            shards=1,
            engine_url=str(rig.client.base_url).rstrip("/"),
            events=rig.server.event_endpoint,
            replay=rig.server.replay_endpoint,
        )
        here = Edge("edge-us", "us", free_address(), free_address(), free_address())
        unit_address = free_address()
        plan = replace(
            draft, edges=(here,), units=(replace(draft.units[0], id="unit-0", address=unit_address),)
        )
        await stack.enter_async_context(served(plan, unit_address))
        edge = EdgeService(
            EdgeSettings(
                id="edge-us",
                plan="",
                peer_key=PEER_KEY,
                lab_mode=True,
                timeouts=Timeouts(unready_s=0, drain_s=1),
            ),
            plan,
            Path(),
        )
        lifecycle = Lifecycle()
        serving = asyncio.create_task(edge.run(lifecycle))
        agent = AgentProcess(
            WorkerAgentSettings(
                plan="",
                workers=["us-0"],
                engine=EngineSettings(load_period_ms=20),
                self_test=SelfTestSettings(enabled=False),
            ),
            plan,
            Path(),
        )
        attached = asyncio.create_task(agent.run())
        try:
            await eventually(lambda: edge.readiness.ready and agent.ops._health().ready, "ready", 60.0)
            await eventually(lambda: edge.prefills.workers == {"us-0"}, "the agent takes replicas")
            rungs = query_plan(plan).rungs
            keys = prefix_keys(namespace(plan.model, SALT), PREFIX, rungs[rungs < len(PREFIX)])

            def matched() -> int:
                found = edge.role.decide(len(PREFIX), keys, GROUP, now_us(), explain=True)
                assert isinstance(found, Decision)
                return found.match_tokens

            assert matched() == 0
            assert edge.prefills.ask("us-0", ReplicaPrefill(1, GROUP, PREFIX, 20_000))
            await eventually(lambda: matched() >= max(rungs[rungs < len(PREFIX)]), "found", 30.0)
            done = edge.metrics.replica_outcomes.labels(PrefillOutcome.DONE)
            await eventually(lambda: done._value.get() == 1, "the edge was told")
            counters = (await rig.client.get("/server_info")).json()["kvcompass_mock"]
            assert (counters["generated_tokens"], counters["resident_blocks"]) == (0, len(PREFIX) // 16)
        finally:
            attached.cancel()
            lifecycle.stop()
            with suppress(asyncio.CancelledError):
                await attached
            await serving
            await lifecycle.close()
