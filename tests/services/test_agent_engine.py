"""A worker agent process between a scripted engine, a unit and an edge, over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from kvcompass.engine_events import BlockRemoved
from kvcompass.fleet.load import WorkerState
from kvcompass.plan.model import Plan
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.messages import Refusal
from kvcompass.roles.worker_agent import WorkerAgent
from services.worker_agent.process import AgentProcess
from services.worker_agent.served_worker import ServedWorker
from services.worker_agent.settings import EngineSettings, WorkerAgentSettings
from tests.models.agent_fleets import agent_plan
from tests.services.agent_doubles import (
    BLOCK,
    ListeningEdge,
    NaiveUnit,
    ScriptedEngine,
    eventually,
    keys_of,
    served_edge,
    served_unit,
    stored,
)

PROMPT = list(range(100, 132))
ENGINE = EngineSettings(
    load_period_ms=20, load_timeout_ms=500, event_timeout_ms=500, quiet_ms=100, failures_before_unreachable=2
)


@dataclass
class Scene:
    engine: ScriptedEngine
    unit: NaiveUnit
    edge: ListeningEdge
    plan: Plan
    process: AgentProcess

    @property
    def worker(self) -> ServedWorker:
        return self.process.workers[0]

    @property
    def agent(self) -> WorkerAgent:
        return self.worker.agent

    async def holds(self, *prompts: list[int]) -> None:
        """Wait until the unit has exactly the prefixes of these prompts."""
        wanted = set().union(*(keys_of(self.plan, prompt) for prompt in prompts)) if prompts else set()
        await eventually(lambda: set(self.unit.held) == wanted, f"holds {len(prompts)} prompts")

    async def told(self, state: WorkerState) -> None:
        """Wait until the edge's newest load says so."""
        await eventually(lambda: [load.state for load in self.edge.loads[-1:]] == [state], f"told {state}")

    async def ready(self) -> None:
        await eventually(lambda: self.process.ops._health().ready, f"ready: {self.process.ops._health()}")


@asynccontextmanager
async def scene(
    engine: ScriptedEngine, *, replay: bool = True, start: bool = True, lease_ms: int = 600
) -> AsyncIterator[Scene]:
    unit, edge = NaiveUnit(lease_ms), ListeningEdge()
    if start and not engine._url_port:
        await engine.start()
    async with served_unit(unit) as unit_address, served_edge(edge) as edge_address:
        plan = agent_plan(
            shards=1,
            engine_url=engine.url,
            events=engine.events,
            replay=engine.replay if replay else "",
            edge_grpc=edge_address,
            unit_addresses=(unit_address,),
            lease_ms=lease_ms,
        )
        process = AgentProcess(WorkerAgentSettings(plan="", workers=["us-0"], engine=ENGINE), plan, Path())
        running = asyncio.create_task(process.run())
        try:
            yield Scene(engine, unit, edge, plan, process)
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
            await engine.kill()


@pytest.fixture
async def at_work() -> AsyncIterator[Scene]:
    """An agent that has attached to an engine with one prompt in its cache."""
    engine = ScriptedEngine()
    await engine.start()
    engine.publish(stored(PROMPT))
    async with scene(engine) as ready:
        await ready.ready()
        yield ready


async def test_the_past_is_replayed_and_the_present_followed(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    other = [*PROMPT[:BLOCK], *range(500, 508)]
    at_work.engine.publish(stored(other[BLOCK:], first_hash=50, parent=1))
    await at_work.holds(PROMPT, other)
    at_work.engine.publish(BlockRemoved((51,), "GPU"))
    await at_work.holds(PROMPT, other[: 2 * BLOCK])
    assert at_work.agent.state is AgentState.EXACT


async def test_a_hole_is_replayed(at_work: Scene) -> None:
    at_work.engine.skip(BlockRemoved((8,), "GPU"))
    at_work.engine.publish(BlockRemoved((7,), "GPU"))
    await at_work.holds(PROMPT[: 6 * BLOCK])
    assert (at_work.agent.state, at_work.agent.lost_batches) == (AgentState.EXACT, 0)


async def test_a_dropped_last_batch_is_found_in_the_quiet(at_work: Scene) -> None:
    at_work.engine.skip(BlockRemoved((8,), "GPU"))
    await at_work.holds(PROMPT[: 7 * BLOCK])


async def test_a_killed_engine_is_told_to_edges_and_its_lease_left_to_end(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    await at_work.engine.kill()
    await at_work.told(WorkerState.UNREACHABLE)
    renewals = len(at_work.unit.renewals)
    await asyncio.sleep(0.5)  # two periods of renewal
    assert len(at_work.unit.renewals) == renewals
    assert at_work.agent.state is AgentState.UNREACHABLE
    assert not at_work.process.ops._health().ready


async def test_a_restarted_engine_is_learned_anew_in_a_new_epoch(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    epoch = at_work.agent.epoch
    await at_work.engine.kill()
    other = list(range(900, 908))
    await at_work.engine.start()
    at_work.engine.publish(stored(other, first_hash=70))
    await at_work.holds(other)
    await at_work.told(WorkerState.READY)
    assert at_work.agent.epoch > epoch
    assert at_work.unit.hellos[-1].handshake.epoch == at_work.agent.epoch
    assert at_work.agent.engine_restarts == 1
    await eventually(lambda: at_work.agent.state is AgentState.EXACT, "attached again")


async def test_an_engine_that_was_only_silent_keeps_what_was_learned(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    await at_work.engine.fall_silent()
    await eventually(lambda: at_work.agent.state is AgentState.UNREACHABLE, "unreachable")
    at_work.engine.publish(BlockRemoved((8,), "GPU"))
    renewals = len(at_work.unit.renewals)
    await at_work.engine.answer()
    await at_work.holds(PROMPT[: 7 * BLOCK])
    await eventually(lambda: len(at_work.unit.renewals) > renewals, "renewed again")
    await eventually(lambda: at_work.agent.state is AgentState.EXACT, "attached again")
    assert at_work.agent.engine_restarts == 0


async def test_a_past_that_the_engine_forgot_makes_the_worker_partly_known() -> None:
    engine = ScriptedEngine(ring_batches=2)
    await engine.start()
    engine.publish(stored(PROMPT[: 2 * BLOCK]))
    engine.publish(stored(PROMPT[2 * BLOCK :], first_hash=3, parent=2))
    engine.publish(stored([7, 7, 7, 7], first_hash=90))
    async with scene(engine) as partial:
        await partial.ready()
        assert partial.agent.state is AgentState.PARTIAL
        assert partial.agent.lost_batches == 2
        assert any("known in part" in reason for reason in partial.process.ops._health().reasons)
        await partial.holds([7, 7, 7, 7])
        assert partial.agent.holdings.detached == 6
        engine.publish(stored(PROMPT[: 2 * BLOCK]))
        await partial.holds(PROMPT, [7, 7, 7, 7])


async def test_without_a_replay_socket_only_the_future_is_known() -> None:
    engine = ScriptedEngine()
    await engine.start()
    engine.publish(stored(PROMPT))
    async with scene(engine, replay=False) as partial:
        await partial.ready()
        assert partial.agent.state is AgentState.PARTIAL
        other = list(range(900, 908))
        engine.publish(stored(other, first_hash=70))
        await partial.holds(other)


async def test_a_replay_socket_that_never_answers_costs_the_past_only() -> None:
    engine = ScriptedEngine()
    await engine.start()
    engine.publish(stored(PROMPT))
    assert engine._replay is not None
    engine._replay.cancel()
    async with scene(engine) as partial:
        await partial.ready()
        assert partial.agent.state is AgentState.PARTIAL
        other = list(range(900, 908))
        engine.publish(stored(other, first_hash=70))
        await partial.holds(other)
        assert partial.worker.follower.replay_failures > 0


async def test_a_batch_that_cannot_be_read_is_a_hole_that_nothing_mends(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    assert at_work.engine._publisher is not None
    at_work.engine._publisher.publish(b"no batch")
    await at_work.holds()
    assert (at_work.agent.state, at_work.worker.follower.broken_batches) == (AgentState.PARTIAL, 1)
    at_work.engine.publish(stored(PROMPT))
    await at_work.holds(PROMPT)


async def test_a_page_size_that_does_not_fit_refuses_the_worker_and_names_the_field() -> None:
    engine = ScriptedEngine()
    engine.info = {"page_size": 3}
    async with scene(engine) as refused:
        await eventually(lambda: refused.agent.state is AgentState.REFUSED, "refused")
        assert refused.agent.refusal is not None and refused.agent.refusal.field == "block_size"
        await refused.told(WorkerState.DRAINING)
        assert any("block_size" in reason for reason in refused.process.ops._health().reasons)


async def test_load_is_estimated_and_sent_with_one_handshake(at_work: Scene) -> None:
    at_work.engine.loads = {"num_running_reqs": 3, "num_waiting_reqs": 2, "num_waiting_uncached_tokens": 500}
    await eventually(lambda: at_work.edge.loads[-1].waiting == 2, "told the load")
    load = at_work.edge.loads[-1]
    assert (load.worker_id, load.running, load.queue_ms) == ("us-0", 3, 500 * 0.1)
    assert len(at_work.edge.handshakes) == 1
    assert at_work.edge.sequences == list(range(1, len(at_work.edge.sequences) + 1))


async def test_a_broken_stream_reconnects_and_agrees_by_digest(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    reports = at_work.unit.reports
    at_work.unit.hang_up()
    await eventually(lambda: len(at_work.unit.hellos) == 2, "a second hello")
    await at_work.ready()
    at_work.engine.publish(BlockRemoved((8,), "GPU"))
    await at_work.holds(PROMPT[: 7 * BLOCK])
    assert at_work.unit.reports == reports, "nothing had changed, so no full report"


async def test_a_unit_that_lost_everything_is_refilled(at_work: Scene) -> None:
    await at_work.holds(PROMPT)
    at_work.unit.lose_everything()
    await at_work.holds(PROMPT)


async def test_a_refusal_is_shown_with_its_field(at_work: Scene) -> None:
    at_work.unit.refusal = Refusal("quantum", "layout differs in quantum")
    at_work.unit.hang_up()
    await eventually(
        lambda: any("refused: quantum" in reason for reason in at_work.process.ops._health().reasons),
        "the refusal is shown",
    )
    assert not at_work.process.ops._health().ready
