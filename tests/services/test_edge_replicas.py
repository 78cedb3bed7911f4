"""The door of replicas at an edge: whom it can ask, what it is told, and who is left alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import grpc.aio
import numpy as np
import pytest

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.roles.messages import (
    Acknowledgement,
    AgentLoad,
    LoadReply,
    PrefillAnswer,
    PrefillOutcome,
    Refusal,
    ReplicaPrefill,
)
from services.edge.fleet import prefill_desk
from services.runtime.grpc_transport import Dialer
from services.wire.rpc import read, report_load
from tests.services.edge_fleet import Fleet, eventually, fleet

PREFIX = ReplicaPrefill(7, "default", np.arange(40, dtype=np.int32), 1_000)


def loaded(worker: str = "us-0") -> WorkerLoad:
    return WorkerLoad(worker, WorkerState.READY, 0.0, 0, 0, 0, 100, 0.2, 0)


@asynccontextmanager
async def agent_of(
    lab: Fleet, worker: str = "us-0", *, takes: bool = True, epoch: int = 9
) -> AsyncIterator[grpc.aio.StreamStreamCall[AgentLoad, LoadReply]]:
    """A load stream that the edge has acknowledged."""
    us = lab.edges["us"]
    handshake = replace(us._handshake, component_id=worker)
    async with Dialer({}).channel(us.place.grpc_address) as channel:
        call = report_load(channel)()
        await call.write(AgentLoad(handshake, epoch, 1, loaded(worker), takes))
        assert isinstance(await asyncio.wait_for(read(call), 5), Acknowledgement)
        yield call
        call.cancel()


async def test_an_agent_that_takes_replicas_is_asked_and_its_answer_counted(monkeypatch):
    async with fleet(monkeypatch) as lab, agent_of(lab) as call:
        desk = lab.edges["us"].prefills
        assert desk.workers == {"us-0"}
        assert desk.ask("us-0", PREFIX)
        asked = await asyncio.wait_for(read(call), 5)
        assert isinstance(asked, ReplicaPrefill)
        assert (asked.id, asked.tokens.tolist()) == (7, list(range(40)))
        outcomes = (PrefillOutcome.DONE, PrefillOutcome.BUSY, PrefillOutcome.BUSY)
        for sequence, outcome in enumerate(outcomes, 2):
            answer = PrefillAnswer(7, outcome, 40)
            await call.write(AgentLoad(None, 9, sequence, loaded(), False, (answer,)))
        await eventually(lambda: lab.metric("us", "replica_outcomes_total", outcome="busy") == 2)
        assert lab.metric("us", "replica_outcomes_total", outcome="done") == 1
        assert lab.metric("us", "loads_total", source="agent", use="accepted") == 4, "loads came with them"
        assert lab.metric("us", "replica_asks_total", use="sent") == 1


@pytest.mark.parametrize("worker", ["us-0", "us-1", "nobody"])
async def test_an_agent_of_the_version_before_is_never_asked_nor_one_that_is_not_there(monkeypatch, worker):
    async with fleet(monkeypatch) as lab, agent_of(lab, takes=False) as call:
        desk = lab.edges["us"].prefills
        assert desk.workers == frozenset()
        assert not desk.ask(worker, PREFIX)
        assert lab.metric("us", "replica_asks_total", use="unsent") == 1
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(call), 0.2)


async def test_the_newest_stream_of_a_worker_is_the_one_that_is_asked(monkeypatch):
    async with fleet(monkeypatch) as lab, agent_of(lab) as older:
        async with agent_of(lab, epoch=10) as newer:
            assert isinstance(await asyncio.wait_for(read(older), 5), Refusal)
            assert lab.edges["us"].prefills.ask("us-0", PREFIX)
            assert isinstance(await asyncio.wait_for(read(newer), 5), ReplicaPrefill)
        await eventually(lambda: lab.edges["us"].prefills.workers == frozenset())


async def test_a_stream_that_is_malformed_ends_though_something_is_asked_on_it(monkeypatch):
    async with fleet(monkeypatch) as lab, agent_of(lab) as call:
        lab.edges["us"].prefills.ask("us-0", PREFIX)
        await call.write(AgentLoad(None, 11, 2, loaded()))
        replies = [await asyncio.wait_for(read(call), 5) for _ in range(3)]
        assert isinstance(replies[0], ReplicaPrefill)
        assert isinstance(replies[1], Refusal)
        assert (replies[1].field, replies[2]) == ("load", None)


async def test_an_agent_that_reads_nothing_is_asked_a_bounded_number_of_times(monkeypatch):
    """Nothing runs between the questions: what is unsent waits."""
    async with fleet(monkeypatch) as lab, agent_of(lab):
        desk = lab.edges["us"].prefills
        sent = [desk.ask("us-0", PREFIX) for _ in range(10)]
        assert sum(sent) == prefill_desk._UNSENT_MOST
        assert sent == sorted(sent, reverse=True)
