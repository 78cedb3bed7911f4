"""However many streams are opened in a worker's name, one is served, and the true agent is it in the end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    STREAM_FIELD,
    AgentToUnit,
    Handshake,
    Refusal,
    SubscribeRequest,
    UnitToAgent,
    Welcome,
)
from kvcompass.roles.unit_report import UnitReport
from kvcompass.roles.worker_source import Registration
from services.maintenance.service import IndexService
from services.runtime import grpc_transport
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.wire import rpc
from services.worker_agent.report_stream import ReportStream
from services.worker_agent.settings import StreamSettings
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import replication_plan
from tests.models.replication_service import Served, connected, served, until
from tests.services.held_nothing import HeldNothing

PLAN = replication_plan()
LAYOUT = layout_fields(PLAN)
MOST = 16
SMALL_WINDOW = [("grpc.http2.lookahead_bytes", 1_024), ("grpc.http2.bdp_probe", 0)]

Call = grpc.aio.StreamStreamCall[AgentToUnit, UnitToAgent]


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Report streams that are being served, in a server that serves few."""
    open_now: Counter[str] = Counter()
    report = IndexService.report

    async def counted(self: IndexService, messages: AsyncIterator[AgentToUnit], context: rpc.Context) -> None:
        open_now["report"] += 1
        try:
            await report(self, messages, context)
        finally:
            open_now["report"] -= 1

    monkeypatch.setattr(IndexService, "report", counted)
    monkeypatch.setattr(grpc_transport, "RPCS_MOST", MOST)
    return open_now


async def opened(channel: grpc.aio.Channel, agent: TwinAgent) -> Call:
    call = rpc.report(channel)()
    async with asyncio.timeout(10):
        await call.write(agent.hello())
        assert isinstance(await rpc.read(call), Welcome)
    return call


def registered(unit: Served, worker: str = "a-0") -> Registration:
    return unit.unit.registered(now_us())[worker].registration


async def test_silent_streams_of_one_worker_end_one_by_one_and_leave_room_for_all(streams):
    agent = TwinAgent("a-0", LAYOUT)
    async with served(PLAN) as unit, Dialer({}).channel(unit.address) as channel:
        calls = [await opened(channel, agent) for _ in range(3 * MOST)]
        for call in calls[:-1]:
            async with asyncio.timeout(10):
                refusal = await rpc.read(call)
                assert isinstance(refusal, Refusal)
                assert refusal.field == STREAM_FIELD
                assert await rpc.read(call) is None
        await until(lambda: streams["report"] == 1)
        async with connected(TwinAgent("a-1", LAYOUT), unit.address) as other:
            await other.edit({1: 1})
            await other.acknowledged()
    assert unit.unit.counters.superseded_streams == 3 * MOST - 1


async def test_one_that_does_not_read_its_answers_is_served_no_more_either(streams):
    agent, unread = TwinAgent("a-0", LAYOUT), 3_000
    async with (
        served(PLAN) as unit,
        Dialer({}).channel(unit.address) as channel,
        grpc.aio.insecure_channel(unit.address, options=SMALL_WINDOW) as narrow,
    ):
        call = rpc.report(narrow)()
        await call.write(agent.hello())
        writing = asyncio.create_task(_edit(call, agent, unread))
        sequence = -1
        while sequence != unit.unit.registered(now_us())["a-0"].sequence:
            sequence = unit.unit.registered(now_us())["a-0"].sequence
            await asyncio.sleep(0.3)
        assert 0 < sequence < unread, "it is not read either"
        newest = await opened(channel, TwinAgent("a-0", LAYOUT))
        await until(lambda: streams["report"] == 1)
        newest.cancel()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)


async def _edit(call: Call, agent: TwinAgent, messages: int) -> None:
    for number in range(messages):
        await call.write(agent.edit({1: 1 + number % 2}))


@pytest.mark.parametrize("epoch", [1, 666])
async def test_an_agent_that_another_spoke_for_is_live_again_without_a_restart(epoch):
    async with served(PLAN) as unit, Dialer({}).channel(unit.address) as channel:
        stream = ReportStream(
            UnitReport(HeldNothing(PLAN.workers[0]), 0, LAYOUT, 1, lease_ms=3_000),
            channel,
            unit_id="unit-0",
            worker_id="a-0",
            vouches=lambda: True,
            may_renew=lambda: True,
            settings=StreamSettings(),
        )
        running = asyncio.create_task(stream.run())
        await until(lambda: not stream.problem and registered(unit) is Registration.LIVE)
        forged = await opened(channel, TwinAgent("a-0", LAYOUT, epoch=epoch, sequence=2**63))
        forged.cancel()
        await until(lambda: stream.connects == 2 and not stream.problem)
        await until(lambda: registered(unit) is Registration.LIVE)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_an_edge_has_one_stream_and_the_older_is_ended_aloud():
    request = SubscribeRequest(Handshake("edge-a", 1, PROTOCOL_VERSION, 1, LAYOUT), 0, 0)
    async with served(PLAN) as unit, Dialer({}).channel(unit.address) as channel:
        calls = [rpc.subscribe(channel)() for _ in range(3)]
        for number, call in enumerate(calls, 1):
            await call.write(request)
            await until(lambda opened=number: unit.unit.counters.superseded_subscribers == opened - 1)
            await until(lambda: unit.unit.subscriber_lags() == {"edge-a": 0})
        for call in calls[:-1]:
            async with asyncio.timeout(10):
                refusal = await rpc.read(call)
                assert isinstance(refusal, Refusal)
                assert refusal.field == STREAM_FIELD
                assert await rpc.read(call) is None
        await until(lambda: len(unit.unit._desk._subscriptions) == 1)
