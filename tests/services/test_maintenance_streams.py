"""Agents, a unit and an edge over real gRPC: what is reported is what is found."""

import asyncio
import random
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    EdgeToUnit,
    Handshake,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    SubscribeRequest,
    UnitToEdge,
)
from kvcompass.roles.resubscribe import ResubscribeReason
from services.maintenance.patch_loss import PatchLoss
from services.runtime.grpc_transport import Dialer
from services.runtime.settings import SettingsError
from services.wire import rpc
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import Served, connected, following, served, until


@pytest.fixture
def plan() -> Plan:
    return replication_plan()


def twin(plan: Plan, worker: str, **holdings: int) -> TwinAgent:
    return TwinAgent(worker, layout_fields(plan), holdings={int(k[1:]): t for k, t in holdings.items()})


async def settle(plan: Plan, unit: Served, *workers: str) -> None:
    """Lets the other workers say once that they hold nothing."""
    for worker in workers:
        async with connected(twin(plan, worker), unit.address):
            pass


async def test_what_an_agent_reports_is_found_in_an_edges_view(plan):
    async with served(plan) as unit, following(plan, unit.address) as edge:
        await settle(plan, unit, *WORKERS[1:])
        assert edge.state is FollowerState.ABSENT
        async with connected(twin(plan, "a-0", k5=1, k6=2), unit.address) as agent:
            await until(lambda: edge.state is FollowerState.EXACT)
            assert [edge.tier(key) for key in (5, 6)] == [1, 2]
            await agent.edit({5: 0, 7: 1, 6: 1})
            await until(lambda: edge.tier(7) == 1)
            assert [edge.tier(key) for key in (5, 6)] == [0, 1]
            await agent.acknowledged()
            await until(lambda: unit.unit.subscriber_lags() == {"edge-a": 0})
            assert (unit.unit.sequence, unit.unit.digest) == (
                edge.follower.applied_sequence,
                edge.follower.digest,
            )
            told = agent.agent.renewal()
            assert unit.unit.held()["a-0"] == (told.holdings, told.holdings_digest)
            assert unit.unit.held()["a-1"] == (0, 0)
    assert edge.follower.counters.resubscriptions == {}


async def test_a_worker_that_falls_silent_is_cleared_at_the_edge_after_its_lease():
    plan = replication_plan(lease_ms=600)
    async with served(plan) as unit, following(plan, unit.address) as edge:
        await settle(plan, unit, "b-0")
        async with (
            connected(twin(plan, "a-0"), unit.address) as silent,
            connected(twin(plan, "a-1"), unit.address) as alive,
        ):
            await silent.edit({5: 1})
            await alive.edit({5: 2})
            await until(lambda: edge.tier(5, slot=0) == 1 and edge.tier(5, slot=1) == 2)
            while edge.tier(5, slot=0):
                await alive.send(alive.agent.renewal())
                await asyncio.sleep(0.05)
            assert edge.tier(5, slot=1) == 2
            await silent.send(silent.agent.renewal())
            await until(lambda: edge.tier(5, slot=0) == 1)
    assert unit.unit.counters.full_reports == 1


async def test_an_edge_serves_on_while_its_unit_restarts_empty_then_switches(plan):
    async with served(plan) as first:
        await settle(plan, first, *WORKERS[1:])
        agent = twin(plan, "a-0", k5=1)
        async with connected(agent, first.address), following(plan, first.address, 300_000) as edge:
            await until(lambda: edge.state is FollowerState.EXACT)
            first_epoch = edge.follower.unit_epoch
            await first.server.stop(0)
            async with served(plan, first.address) as second:
                await until(lambda: edge.state is FollowerState.STALE)
                await until(lambda: second.unit.subscriber_lags() != {})
                assert edge.tier(5) == 1
                await settle(plan, second, *WORKERS[1:])
                agent.holdings = {6: 2}
                async with connected(agent, first.address):
                    await until(lambda: edge.state is FollowerState.EXACT)
                    assert edge.follower.unit_epoch == second.unit.epoch != first_epoch
                    assert (edge.tier(5), edge.tier(6)) == (0, 2)
    assert FollowerState.ABSENT not in edge.states[1:]
    assert edge.follower.counters.resubscriptions[ResubscribeReason.LOST] >= 1


async def test_an_edge_that_returns_within_the_log_is_sent_no_second_snapshot(plan):
    async with served(plan) as unit:
        await settle(plan, unit, *WORKERS[1:])
        async with connected(twin(plan, "a-0", k5=1), unit.address) as agent:
            async with following(plan, unit.address) as edge:
                await until(lambda: edge.state is FollowerState.EXACT)
            await agent.edit({6: 1})
            await agent.acknowledged()
            async with edge.feed():
                await until(lambda: edge.tier(6) == 1)
                await until(lambda: edge.state is FollowerState.EXACT)
    assert edge.follower.counters.snapshots == 1


async def test_what_is_lost_on_purpose_is_missed_and_mended(plan):
    loss = PatchLoss(random.Random(1))
    async with served(plan, loss=loss) as unit, following(plan, unit.address) as edge:
        await settle(plan, unit, *WORKERS[1:])
        async with connected(twin(plan, "a-0"), unit.address) as agent:
            await until(lambda: edge.state is FollowerState.EXACT)
            loss.set_share("0.5")
            for key in range(40):
                await agent.edit({key: 1})
                await agent.acknowledged()
                await asyncio.sleep(0.01)
            loss.set_share("0")
            await until(lambda: edge.state is FollowerState.EXACT and edge.tier(39) == 1)
            assert all(edge.tier(key) == 1 for key in range(40))
            assert edge.follower.digest == unit.unit.digest
    reasons = edge.follower.counters.resubscriptions
    assert loss.lost > 0
    assert reasons[ResubscribeReason.GAP] + reasons[ResubscribeReason.BEHIND] > 0
    assert edge.follower.counters.digest_mismatches == 0


@pytest.mark.parametrize("share", ["", "x", "-0.1", "1.1", "nan"])
def test_what_is_no_share_is_refused(share):
    with pytest.raises(SettingsError, match="from 0 to 1"):
        PatchLoss(random.Random(1)).set_share(share)


async def test_a_refused_edge_says_so_and_keeps_trying(plan):
    other = replication_plan(plan_version=3)
    async with served(plan) as unit, following(other, unit.address) as edge:
        await until(lambda: edge.follower.counters.resubscriptions[ResubscribeReason.REFUSED] >= 2)
        assert edge.follower.refusal is not None
        assert edge.follower.refusal.field == "plan_version"
        assert edge.state is FollowerState.ABSENT


async def test_a_refused_agent_is_told_the_field(plan):
    stranger = twin(plan, "a-0")
    stranger.layout = {**stranger.layout, "block_size": "64"}
    async with served(plan) as unit, Dialer({}).channel(unit.address) as channel:
        call = rpc.report(channel)()
        await call.write(stranger.hello())
        answer = await rpc.read(call)
        assert isinstance(answer, Refusal)
        assert answer.field == "block_size"
        assert await rpc.read(call) is None


@pytest.mark.parametrize("method", ["Report", "Subscribe"])
async def test_nonsense_ends_a_stream_with_a_refusal_and_harms_nobody_else(plan, method):
    decode = {"Report": rpc.index.decode_unit_to_agent, "Subscribe": rpc.index.decode_unit_to_edge}[method]
    async with served(plan) as unit, Dialer({}).channel(unit.address) as channel:
        call = channel.stream_stream(f"/kvcompass.v1.IndexMaintenance/{method}", None, decode)(None)
        await call.write(b"\xff\xff\xff")
        answer = await rpc.read(call)
        assert isinstance(answer, Refusal)
        async with connected(twin(plan, "a-0"), unit.address) as agent:
            await agent.edit({1: 1})
            await agent.acknowledged()


async def test_nonsense_after_the_first_message_ends_a_subscription_too(plan):
    """An edge whose acknowledgements cannot be read would hold up vacant places for ever."""
    request = SubscribeRequest(Handshake("edge-a", 1, PROTOCOL_VERSION, 1, layout_fields(plan)), 0, 0)
    encode, decode = rpc.index.encode_edge_to_unit, rpc.index.decode_unit_to_edge
    async with served(plan) as unit, Dialer({}).channel(unit.address) as channel:
        call = channel.stream_stream("/kvcompass.v1.IndexMaintenance/Subscribe", None, decode)(None)
        await call.write(encode(request))
        await until(lambda: len(unit.unit.subscriber_lags()) == 1)
        await call.write(b"\xff\xff\xff")
        async with asyncio.timeout(5.0):
            while not isinstance(answer := await rpc.read(call), Refusal):
                assert answer is not None, "it ends with a refusal"
            assert await rpc.read(call) is None
        await until(lambda: not unit.unit.subscriber_lags())


async def test_a_stream_whose_first_message_does_not_come_is_ended(plan):
    async with served(plan) as unit, Dialer({}).channel(unit.address) as channel:
        call = rpc.subscribe(channel)()
        answer = await rpc.read(call)
        assert isinstance(answer, Refusal)
        assert answer.field == "stream"


async def test_a_subscriber_that_does_not_read_costs_nothing_and_gets_a_snapshot_later(plan):
    async with served(plan, log_groups=50) as unit:
        await settle(plan, unit, *WORKERS[1:])
        handshake = Handshake("edge-a", 1, PROTOCOL_VERSION, 1, layout_fields(plan))
        stop = asyncio.Event()

        async def requests() -> AsyncIterator[EdgeToUnit]:
            yield SubscribeRequest(handshake, 0, 0)
            await stop.wait()

        async with connected(twin(plan, "a-0"), unit.address) as agent:
            taken: asyncio.Queue[UnitToEdge] = asyncio.Queue(maxsize=1)
            context = SimpleNamespace(write=taken.put)
            stream = asyncio.create_task(unit.service.subscribe(requests(), context))  # type: ignore[arg-type]
            await until(taken.full)
            for key in range(200):
                await agent.edit({key % 60: 1 + key % 2})
            await agent.acknowledged()
            received = [await taken.get() for _ in range(3)]
            assert isinstance(received[0], SnapshotChunk)
            assert any(isinstance(message, SnapshotChunk) for message in received[1:])
            assert sum(m.count for m in received if isinstance(m, PatchGroups)) <= 50
            assert unit.unit.counters.overflows == 1
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
            assert unit.unit.subscriber_lags() == {}
