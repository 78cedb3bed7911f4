"""Two processes that speak for one sender of load: the newest stream is believed, the other is told so."""

import asyncio
from dataclasses import replace

import grpc.aio
import pytest

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.roles.messages import Acknowledgement, AgentLoad, Refusal, RegionBroadcast
from services.edge.composition import EdgeService
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.wire.rpc import exchange_load, read, report_load
from services.worker_agent.load_stream import LoadStream
from services.worker_agent.settings import StreamSettings
from tests.models.routing_fleets import region_load
from tests.services.edge_fleet import Fleet, eventually, fleet

PAIR = ("us", "eu")


def of(worker: str, queue_ms: float) -> WorkerLoad:
    return WorkerLoad(worker, WorkerState.READY, queue_ms, 1, 0, 10, 100, 0.2, 0)


def told(edge: EdgeService) -> float | None:
    """Queue of us-0 as the newest accepted message has it."""
    load = edge.role.fleet.load_of(0, now_us())
    return None if load is None else load.queue_ms


async def wake_on(stream: LoadStream) -> None:
    """As the polls of the engine's load do."""
    while True:
        stream.wake()
        await asyncio.sleep(0.02)


async def forge(
    lab: Fleet, channel: grpc.aio.Channel, queue_ms: float, epoch: int = 666, sequence: int = 1
) -> None:
    """One ReportLoad of somebody else in us-0's name."""
    handshake = replace(lab.edges["us"]._handshake, component_id="us-0", epoch=epoch)
    call = report_load(channel)()
    await call.write(AgentLoad(handshake, epoch, sequence, of("us-0", queue_ms)))
    assert isinstance(await asyncio.wait_for(read(call), 5), Acknowledgement)
    call.cancel()


@pytest.mark.parametrize(
    ("epoch", "sequence", "process", "refused"),
    [(666, 1, "another", 0), (9, 2**64 - 1, "same", 1)],
    ids=["an epoch of its own", "the agent's epoch"],
)
async def test_an_agent_that_another_spoke_for_is_believed_again_without_a_restart(
    monkeypatch, epoch, sequence, process, refused
):
    async with fleet(monkeypatch) as lab:
        us = lab.edges["us"]
        async with Dialer({}).channel(us.place.grpc_address) as channel:
            stream = LoadStream(
                channel,
                edge_id="us",
                worker_id="us-0",
                epoch=9,
                layout=us._handshake.layout,
                plan_version=lab.plan.plan_version,
                load=lambda: of("us-0", 5.0),
                settings=StreamSettings(),
            )
            running = asyncio.create_task(stream.run())
            stream.wake()
            await eventually(lambda: not stream.problem and told(us) == 5.0)
            await forge(lab, channel, 9_000.0, epoch, sequence)
            assert told(us) == 9_000.0
            polling = asyncio.create_task(wake_on(stream))
            # It learns of it by the refusal, or by a write that fails before the refusal is read.
            await eventually(lambda: stream.connects == 2 and not stream.problem and told(us) == 5.0)
            await eventually(lambda: lab.metric("us", "loads_total", source="agent", use="accepted") >= 4)
            assert lab.metric("us", "loads_total", source="agent", use="old_sequence") == refused
            for task in (running, polling):
                task.cancel()
            await asyncio.gather(running, polling, return_exceptions=True)
        superseded = lab.metric("us", "superseded_load_streams_total", source="agent", process=process)
        assert superseded == 1, "the forged stream had ended before the true one came again"


@pytest.mark.parametrize("name", ["nobody", "eu-0", "x" * (4 << 20)])
async def test_whoever_reports_no_load_here_has_no_stream(monkeypatch, name):
    async with fleet(monkeypatch, regions=PAIR) as lab:
        us = lab.edges["us"]
        async with Dialer({}).channel(us.place.grpc_address) as channel:
            call = report_load(channel)()
            handshake = replace(us._handshake, component_id=name)
            await call.write(AgentLoad(handshake, 9, 1, of(name, 1.0)))
            refusal = await asyncio.wait_for(read(call), 5)
            assert isinstance(refusal, Refusal)
            assert refusal.field in ("worker_id", "component_id")
            assert len(refusal.message) < 300
            assert await asyncio.wait_for(read(call), 5) is None


async def test_the_older_stream_is_ended_aloud_though_it_says_nothing(monkeypatch):
    async with fleet(monkeypatch) as lab:
        us = lab.edges["us"]
        async with Dialer({}).channel(us.place.grpc_address) as channel:
            handshake = replace(us._handshake, component_id="us-0")
            calls = [report_load(channel)() for _ in range(3)]
            for number, call in enumerate(calls, 1):
                epoch = 9 if number < 3 else 10
                await call.write(AgentLoad(handshake, epoch, number, of("us-0", float(number))))
                assert isinstance(await asyncio.wait_for(read(call), 5), Acknowledgement)
            for call in calls[:2]:
                refusal = await asyncio.wait_for(read(call), 5)
                assert isinstance(refusal, Refusal)
                assert refusal.field == "stream"
                assert await asyncio.wait_for(read(call), 5) is None
            await calls[2].write(AgentLoad(None, 10, 4, of("us-0", 4.0)))
            await eventually(lambda: told(us) == 4.0)
            await calls[2].write(AgentLoad(None, 11, 5, of("us-0", 5.0)))
            refusal = await asyncio.wait_for(read(calls[2]), 5)
            assert isinstance(refusal, Refusal)
            assert refusal.field == "load", "a stream speaks in one epoch"

        def counted(process: str) -> float:
            return lab.metric("us", "superseded_load_streams_total", source="agent", process=process)

        assert (counted("same"), counted("another")) == (1, 1)


@pytest.mark.parametrize("own", [None, 2**64 - 1], ids=["an epoch of its own", "the edge's epoch"])
async def test_an_edge_that_another_spoke_for_takes_its_turn_back_though_nothing_is_due(monkeypatch, own):
    async with fleet(monkeypatch, regions=PAIR) as lab:
        us, eu = lab.edges["us"], lab.edges["eu"]
        # Answers carry all of the load: no broadcast is ever due.
        monkeypatch.setattr(us.role, "broadcasts_due", lambda _now_us: ())
        us.role.on_worker_load(AgentLoad(None, 9, 1, of("us-0", 77.0)), now_us())
        await eventually(lambda: lab.metric("eu", "loads_total", source="broadcast", use="accepted") >= 1)
        epoch, sequence = (666, 1) if own is None else (us._handshake.epoch, own)
        async with Dialer({}).channel(eu.place.grpc_address) as channel:
            call = exchange_load(channel)()
            forged = region_load("us", "us", epoch, sequence, (of("us-0", 9_000.0),))
            await call.write(RegionBroadcast(replace(us._handshake, epoch=epoch), forged))
            assert isinstance(await asyncio.wait_for(read(call), 5), Acknowledgement)
            assert isinstance(await asyncio.wait_for(read(call), 5), Refusal)
        piggyback = us.role.region_load(now_us())
        assert eu.role.on_region_load(piggyback, now_us()).value == "accepted", (
            "and so are its answers' loads"
        )
        assert told(eu) == 77.0
