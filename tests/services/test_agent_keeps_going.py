"""An error that nobody foresaw costs the worker it came from, and no other."""

import asyncio
from typing import Any

import pytest

from kvcompass.roles.agent_state import AgentState
from services.worker_agent.event_decoder import EventDecoder
from services.worker_agent.load_stream import LoadStream
from tests.services.agent_doubles import eventually
from tests.services.mock_engine_rig import running
from tests.services.test_agent_attach import PROMPT, ports, scene, url_of

RANKS = ({"dp_rank": 0}, {"dp_rank": 1})


async def test_a_worker_that_fails_begins_anew_and_its_neighbour_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        running(page_size=16, dp_size=2, **ports(ranks=2)) as rig,
        scene(url_of(rig), *RANKS) as at_work,
    ):
        workers = at_work.process.workers
        await eventually(lambda: all(w.agent.state is AgentState.EXACT for w in workers), "attached")
        first, neighbour = workers
        epoch = first.agent.epoch

        def fail(*_: Any) -> Any:
            raise RecursionError

        monkeypatch.setattr(first.follower.decoder, "decode", fail)
        await rig.generate(PROMPT, routed_dp_rank=0)
        await eventually(lambda: workers[0] is not first, "built anew")
        assert workers[0].agent.epoch > epoch
        assert isinstance(workers[0].follower.decoder, EventDecoder)
        await at_work.holds(PROMPT, worker="us-0")
        await eventually(lambda: workers[0].agent.state is AgentState.EXACT, "attached anew")
        assert workers[1] is neighbour and neighbour.agent.state is AgentState.EXACT
        await rig.generate(PROMPT, routed_dp_rank=1)
        await at_work.holds(PROMPT, worker="us-1")


async def test_one_that_fails_for_good_claims_nothing_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with running(page_size=16, **ports()) as rig:
        monkeypatch.setattr(EventDecoder, "decode", lambda *_: 1 / 0)
        async with scene(url_of(rig)) as at_work:
            await rig.generate(PROMPT)
            await eventually(lambda: at_work.worker.failures >= 2, "again")
            assert at_work.worker.agent.holdings.blocks == 0


async def test_one_that_fails_while_it_is_ended_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has left the plan, or the process is: it does not begin anew, and ends no other."""

    async def run(_: LoadStream) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError

    monkeypatch.setattr(LoadStream, "run", run)
    async with (
        running(page_size=16, dp_size=2, **ports(ranks=2)) as rig,
        scene(url_of(rig), *RANKS) as at_work,
    ):
        workers, tasks = at_work.process.workers, at_work.process._tasks
        await eventually(lambda: all(w.agent.state is AgentState.EXACT for w in workers), "attached")
        leaving, staying = workers
        task = tasks["us-0"]
        at_work.process._leave(leaving)
        await asyncio.wait_for(asyncio.wait({task}), 5.0)
        assert workers == [staying] and not tasks["us-1"].done()
        await rig.generate(PROMPT, routed_dp_rank=1)
        await at_work.holds(PROMPT, worker="us-1")
