"""A worker agent beside engine doubles: ports, ranks, upgrades, lost events, publishers that fail."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvcompass.fleet.load import WorkerState
from kvcompass.keys import namespace, prefix_keys
from kvcompass.levels import registered_lengths
from kvcompass.plan.model import Plan
from kvcompass.roles.agent_state import AgentState
from kvcompass.tier import Tier
from services.mock_sglang.profiles import ProfileName
from services.worker_agent.load_sources.source import SourceKind
from services.worker_agent.process import AgentProcess
from services.worker_agent.served_worker import ServedWorker
from services.worker_agent.settings import EngineSettings, WorkerAgentSettings
from tests.models.agent_fleets import SALT, agent_plan
from tests.models.ports import free_ports
from tests.services.agent_doubles import ListeningEdge, NaiveUnit, eventually, served_edge, served_unit
from tests.services.mock_engine_rig import Rig, running

ENGINE = EngineSettings(
    load_period_ms=20, load_timeout_ms=500, event_timeout_ms=300, quiet_ms=100, silent_ms=600
)
PROMPT = list(range(300, 620))
OTHERS = [[1_000 * n + i for i in range(320)] for n in range(1, 9)]


@dataclass
class Scene:
    plan: Plan
    process: AgentProcess
    units: dict[str, NaiveUnit]
    """By worker."""
    edge: ListeningEdge

    @property
    def worker(self) -> ServedWorker:
        return self.process.workers[0]

    def details(self, worker: str = "us-0") -> dict[str, Any]:
        return dict(self.process.ops._health().details[worker])

    def reasons(self) -> str:
        return "\n".join(self.process.ops._health().reasons)

    async def is_in(self, state: AgentState) -> None:
        await eventually(lambda: self.worker.agent.state is state, f"{state}: {self.worker.agent.state}")

    async def told(self, state: WorkerState) -> None:
        """Wait until the edge's newest load says so."""
        await eventually(lambda: [load.state for load in self.edge.loads[-1:]] == [state], f"told {state}")

    async def holds(self, *prompts: list[int], worker: str = "us-0") -> None:
        """Wait until the unit has exactly the prefixes of these prompts for the worker."""
        lengths, space = registered_lengths(self.plan), namespace(self.plan.model, SALT)
        wanted = {
            key
            for prompt in prompts
            for key in prefix_keys(space, np.array(prompt, np.int32), lengths).tolist()
        }
        unit = self.units[worker]
        await eventually(lambda: set(unit.held) == wanted, f"{worker} holds {len(prompts)} prompts", 15.0)


class ManyUnits(NaiveUnit):
    """One shard's unit, as each worker sees it."""

    def __init__(self, units: dict[str, NaiveUnit]) -> None:
        super().__init__()
        self._units = units

    async def report(self, messages: Any, context: Any) -> AsyncIterator[Any]:
        hello = await anext(messages)
        unit = self._units[hello.handshake.component_id]

        async def all_messages() -> AsyncIterator[Any]:
            yield hello
            async for message in messages:
                yield message

        async for answer in unit.report(all_messages(), context):
            yield answer


@asynccontextmanager
async def scene(
    url: str, *workers: dict[str, Any], engine: EngineSettings = ENGINE, **plan: Any
) -> AsyncIterator[Scene]:
    """An agent of workers `us-0`, `us-1`... which differ from the plan's worker as said."""
    changes = workers or ({},)
    units = {f"us-{i}": NaiveUnit() for i in range(len(changes))}
    edge = ListeningEdge()
    async with served_unit(ManyUnits(units)) as unit_address, served_edge(edge) as edge_address:
        made = agent_plan(
            **{"block_size": 16, "quantum": 32, "context_length": 4_096, "shards": 1, **plan},
            engine_url=url,
            events="",
            edge_grpc=edge_address,
            unit_addresses=(unit_address,),
            lease_ms=600,
        )
        made = replace(
            made,
            workers=tuple(
                replace(made.workers[0], **{"id": f"us-{i}", "slot": i, **each})
                for i, each in enumerate(changes)
            ),
        )
        settings = WorkerAgentSettings(plan="", workers=list(units), engine=engine)
        process = AgentProcess(settings, made, Path())
        running_agent = asyncio.create_task(process.run())
        try:
            yield Scene(made, process, units, edge)
        finally:
            running_agent.cancel()
            with suppress(asyncio.CancelledError):
                await running_agent


def url_of(rig: Rig) -> str:
    return str(rig.client.base_url).rstrip("/")


def ports(ranks: int = 1, first: int = 0) -> dict[str, str]:
    """Where a double is told to publish, as engines are: at every address, at ports that are known."""
    first = first or free_ports(2 * ranks)
    return {"event_endpoint": f"tcp://*:{first}", "replay_endpoint": f"tcp://*:{first + ranks}"}


async def until(question: Callable[[], Any], what: str) -> None:
    await eventually(question, what, 15.0)


@pytest.mark.parametrize("version", ["0.5.10", "0.5.23"])
async def test_ports_are_those_that_the_engine_says(version: ProfileName) -> None:
    async with running(event_profile=version, **ports()) as rig:
        await rig.generate(PROMPT)
        async with scene(url_of(rig)) as at_work:
            await at_work.holds(PROMPT)
            await at_work.is_in(AgentState.EXACT)
            told = at_work.details()["engine"]
            assert (told["version"], told["page_size"], told["tells_salts"]) == (
                version,
                16,
                version == "0.5.23",
            )


async def test_ports_of_the_plan_go_before_them() -> None:
    async with running(event_profile="0.5.23", event_endpoint="tcp://127.0.0.1:*", replay_endpoint="") as rig:
        async with scene(url_of(rig), {"events": "tcp://127.0.0.1:9"}) as at_work:
            await at_work.is_in(AgentState.SILENT)
            assert "tcp://127.0.0.1:9" in at_work.reasons()
        async with scene(url_of(rig), {"events": rig.server.event_endpoint}) as at_work:
            await at_work.is_in(AgentState.PARTIAL)


async def test_each_rank_is_a_worker_of_its_own() -> None:
    async with running(dp_size=2, **ports(ranks=2)) as rig:
        await rig.generate(PROMPT, routed_dp_rank=1)
        async with scene(url_of(rig), {"dp_rank": 0}, {"dp_rank": 1}) as at_work:
            await at_work.holds(PROMPT, worker="us-1")
            await at_work.holds(worker="us-0")
            await rig.generate(OTHERS[0], routed_dp_rank=0)
            await at_work.holds(OTHERS[0], worker="us-0")
            await at_work.holds(PROMPT, worker="us-1")
            assert [worker.agent.state for worker in at_work.process.workers] == [AgentState.EXACT] * 2
            loads = [worker.loads.kind for worker in at_work.process.workers]
            assert None not in loads


async def test_events_of_another_rank_are_refused() -> None:
    first = free_ports(4)
    swapped = {
        "dp_rank": 0,
        "events": f"tcp://127.0.0.1:{first + 1}",
        "replay": f"tcp://127.0.0.1:{first + 3}",
    }
    async with (
        running(dp_size=2, **ports(ranks=2, first=first)) as rig,
        scene(url_of(rig), swapped) as at_work,
    ):
        await rig.generate(PROMPT, routed_dp_rank=1)
        await at_work.is_in(AgentState.REFUSED)
        assert f"{swapped['events']} has the events of rank 1" in at_work.reasons()
        await at_work.holds()


async def test_an_engine_of_several_ranks_is_refused_as_one_worker() -> None:
    async with running(dp_size=2, **ports(ranks=2)) as rig, scene(url_of(rig)) as at_work:
        await at_work.is_in(AgentState.REFUSED)
        assert "us-0: refused: dp_rank: the engine has 2 data-parallel ranks" in at_work.reasons()
        await at_work.told(WorkerState.DRAINING)


async def test_an_engine_that_is_upgraded_is_asked_again_what_it_is() -> None:
    """Arrays of 16 tokens become maps of 32, at the same ports."""
    first = free_ports(3)
    places = {"address": f"127.0.0.1:{first + 2}", **ports(first=first)}
    async with AsyncExitStack() as stack:
        old = await stack.enter_async_context(running(event_profile="0.5.10", **places))
        async with scene(url_of(old)) as at_work:
            await old.generate(PROMPT)
            await at_work.holds(PROMPT)
            await old.server.stop(0.1)
            await at_work.is_in(AgentState.UNREACHABLE)
            groups = at_work.worker.follower.decoder._groups
            new = await stack.enter_async_context(running(event_profile="0.5.23", page_size=32, **places))
            await new.generate(OTHERS[0])
            await at_work.holds(OTHERS[0])
            told = at_work.details()["engine"]
            assert (told["version"], told["page_size"]) == ("0.5.23", 32)
            await at_work.is_in(AgentState.EXACT)
            assert at_work.worker.agent.engine_restarts == 1
            assert at_work.worker.follower.decoder._groups is not groups, "its caches may be others"


async def test_pages_of_one_token_work_with_a_warning() -> None:
    async with running(page_size=1, **ports()) as rig, scene(url_of(rig)) as at_work:
        await rig.generate(PROMPT)
        await at_work.holds(PROMPT)
        await at_work.is_in(AgentState.EXACT)
        (note,) = at_work.details()["notes"]
        assert "--page-size 16" in note


async def test_what_moves_to_a_host_tier_unsaid_counts_as_dram() -> None:
    async with running(host_cache_tokens=100_000, **ports()) as rig, scene(url_of(rig)) as at_work:
        await rig.generate(PROMPT)
        await at_work.holds(PROMPT)
        assert set(at_work.units["us-0"].held.values()) == {Tier.DRAM}


@pytest.mark.parametrize("kept", [True, False])
async def test_batches_above_a_high_water_mark_are_replayed_or_counted(kept: bool) -> None:
    """A full socket drops batches without a word; the last one's loss shows in the quiet."""
    async with running(fault_switches=True, **ports()) as rig, scene(url_of(rig)) as at_work:
        await rig.generate(PROMPT)
        await at_work.holds(PROMPT)
        await rig.faults(drop_events={"share": 0.5, "kept": kept}, random_seed=1)
        for ids in OTHERS:
            await rig.generate(ids)
        await rig.faults()
        if kept:
            await at_work.holds(PROMPT, *OTHERS)
            await at_work.is_in(AgentState.EXACT)
            assert at_work.worker.agent.lost_batches == 0
            return
        await rig.generate(PROMPT[:160])
        await rig.generate([7] * 160)
        await at_work.is_in(AgentState.PARTIAL)
        assert at_work.worker.agent.lost_batches > 0
        held = set(at_work.units["us-0"].held)
        (await rig.client.post("/flush_cache")).raise_for_status()
        await at_work.is_in(AgentState.EXACT)
        await rig.generate(OTHERS[0])
        await at_work.holds(OTHERS[0])
        assert held


async def test_an_engine_without_a_publisher_is_silent_and_the_flag_is_named() -> None:
    async with running(event_endpoint="", replay_endpoint="") as rig, scene(url_of(rig)) as at_work:
        await at_work.is_in(AgentState.SILENT)
        assert (
            "us-0: silent: it publishes no events: start it with --kv-events-config "
            '\'{"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657",'
            '"topic":"kv-events"}\''
        ) in at_work.reasons()
        assert not at_work.process.ops._health().ready
        await at_work.told(WorkerState.READY)


async def test_a_stuck_publisher_is_noticed_withdrawn_and_heals() -> None:
    async with running(fault_switches=True, time_scale=0.2, **ports()) as rig, scene(url_of(rig)) as at_work:
        await rig.generate(PROMPT)
        await at_work.holds(PROMPT)
        await rig.faults(stick_events=True)
        follower = at_work.worker.follower
        await until(lambda: follower.replay_failures > 0, "asked while it rested: that proves nothing")
        serving = asyncio.create_task(rig.generate(OTHERS[0], tokens=2_000))
        await at_work.is_in(AgentState.SILENT)
        assert "its events and replays have stopped: restart it" in at_work.reasons()
        assert not at_work.worker.agent.vouches
        renewals = len(at_work.units["us-0"].renewals)
        await asyncio.sleep(0.4)
        assert len(at_work.units["us-0"].renewals) == renewals, "the lease is left to end"
        await rig.faults()
        await at_work.is_in(AgentState.EXACT)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        agent = at_work.worker.agent
        assert (agent.engine.silences, agent.engine_restarts, agent.lost_batches) == (1, 0, 0)
        await until(lambda: len(at_work.units["us-0"].renewals) > renewals, "renewed again")


async def test_a_worker_of_predicted_holdings_registers_nothing_and_says_so() -> None:
    predicted = {"holdings": "predicted"}
    async with (
        running(event_endpoint="", replay_endpoint="") as rig,
        scene(url_of(rig), predicted) as at_work,
    ):
        await rig.generate(PROMPT)
        await until(lambda: at_work.process.ops._health().ready, "ready")
        await until(lambda: bool(at_work.units["us-0"].renewals), "its lease is renewed")
        assert (at_work.details()["state"], at_work.units["us-0"].held) == ("approximate", {})
        assert "us-0: approximate:" in at_work.reasons()


async def failing(_scope: Any, _receive: Any, send: Any) -> None:
    """A route that answers 500."""
    await send({"type": "http.response.start", "status": 500, "headers": []})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.parametrize("seen_by", ["its events", "its silence"])
async def test_another_engine_process_has_its_load_asked_for_at_the_best_place(seen_by: str) -> None:
    """It may be a newer one: what the one before did not have is looked for at once."""
    async with running(page_size=16, routes_off=("/v1/loads",), **ports()) as rig:
        routes = rig.server._app._routes
        async with scene(url_of(rig)) as at_work:
            await at_work.is_in(AgentState.EXACT)
            assert at_work.worker.loads.kind is SourceKind.GET_LOAD
            routes["GET", "/v1/loads"] = rig.server._app._loads
            if seen_by == "its events":
                at_work.worker.agent.engine_restarts += 1
            else:
                found, routes["GET", "/get_load"] = routes["GET", "/get_load"], failing
                await at_work.is_in(AgentState.UNREACHABLE)
                routes["GET", "/get_load"] = found
            await eventually(lambda: at_work.worker.loads.kind is SourceKind.V1_LOADS, "the best is taken")


async def hanging(_scope: Any, _receive: Any, _send: Any) -> None:
    """A route that does not answer."""
    await asyncio.sleep(30.0)


async def test_an_engine_that_publishes_and_does_not_answer_is_not_renewed_and_then_given_up() -> None:
    publishing = {"event_profile": "0.5.23", "load_publish_endpoint": f"tcp://*:{free_ports(1)}"}
    async with running(**publishing, **ports()) as rig, scene(url_of(rig)) as at_work:
        await at_work.is_in(AgentState.EXACT)
        await until(lambda: at_work.worker.loads.kind is SourceKind.LOAD_SOCKET, "what it publishes counts")
        renewals = at_work.units["us-0"].renewals
        await until(lambda: len(renewals) > 1, "renewed while it answers")
        rig.server._app._routes["GET", "/v1/loads"] = hanging
        await asyncio.sleep(0.2)
        before, told = len(renewals), len(at_work.edge.loads)
        await asyncio.sleep(0.2)
        assert (at_work.worker.agent.vouches, len(renewals)) == (True, before), "an answer alone renews"
        assert len(at_work.edge.loads) > told, "what it publishes is passed on"
        await at_work.told(WorkerState.UNREACHABLE)
