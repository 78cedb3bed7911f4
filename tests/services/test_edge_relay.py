"""Edges that learn from edges, over real gRPC: one stream of the unit for a region, and back to the units."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import grpc
import grpc.aio
import numpy as np
import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Edge, Plan
from kvcompass.roles import upstream_choice
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Handshake,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnavailableReason,
)
from kvcompass.roles.resubscribe import ResubscribeReason
from services.edge.settings import EdgeSettings, Relay, check_settings
from services.runtime.grpc_transport import Dialer
from services.runtime.settings import SettingsError
from services.wire import rpc
from tests.models.ports import free_address
from tests.models.relay_service import RegionEdge, region_edge
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import ConnectedAgent, Served, connected, served, until
from tests.services.edge_fleet import PEER_KEY, fleet


@dataclass
class Region:
    plan: Plan
    unit: Served
    agent: ConnectedAgent

    @property
    def via(self) -> dict[str, str]:
        return {self.plan.units[0].address: self.unit.address}

    def request(self, name: str = "edge-a9", **changes: int) -> SubscribeRequest:
        handshake = Handshake(name, 1, PROTOCOL_VERSION, 1, layout_fields(self.plan))
        return SubscribeRequest(handshake, 0, 0, **changes)

    def exact(self, *edges: RegionEdge) -> bool:
        """All are where the unit is."""
        return all(
            edge.state is FollowerState.EXACT
            and edge.follower.applied_sequence == self.unit.unit.sequence
            and edge.follower.digest == self.unit.unit.digest
            for edge in edges
        )


@pytest.fixture(autouse=True)
def _soon_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_choice, "RETURN_AFTER_US", 300_000)


@pytest.fixture
async def region() -> AsyncIterator[Region]:
    plan = replication_plan()
    edges = tuple(Edge(f"edge-a{n}", "a", free_address(), free_address(), free_address()) for n in range(3))
    plan = replace(plan, edges=(*edges, plan.edges[-1]))
    async with AsyncExitStack() as ending:
        unit = await ending.enter_async_context(served(plan))
        for worker in WORKERS[1:]:
            async with connected(TwinAgent(worker, layout_fields(plan)), unit.address):
                pass
        twin = TwinAgent("a-0", layout_fields(plan), holdings={5: 1, 6: 2})
        agent = await ending.enter_async_context(connected(twin, unit.address))
        await until(lambda: unit.unit.settled)
        yield Region(plan, unit, agent)


async def test_one_stream_of_the_unit_feeds_all_edges_of_a_region(region):
    async with region_edge(region.plan, "edge-a0", via=region.via) as first:
        await until(lambda: region.exact(first))
        async with (
            region_edge(region.plan, "edge-a1", via=region.via) as second,
            region_edge(region.plan, "edge-a2", via=region.via) as third,
        ):
            await until(lambda: region.exact(second, third))
            assert [edge.fed_by for edge in (first, second, third)] == ["unit-0", "edge-a0", "edge-a0"]
            assert [third.tier(key) for key in (5, 6)] == [1, 2]
            await region.agent.edit({5: 0, 7: 1})
            await until(lambda: third.tier(7) == 1 and second.tier(7) == 1)
            assert third.tier(5) == 0
            await until(lambda: region.unit.unit.subscriber_lags() == {"edge-a0": 0})
            assert first.relay.subscribers == 2
            assert first.relay.counters.payload_bytes > 0
    assert region.unit.unit.counters.snapshots == 1


async def test_a_first_edge_that_dies_is_left_for_the_unit_and_followed_again_when_it_is_back(region):
    async with AsyncExitStack() as ending:
        first = await ending.enter_async_context(region_edge(region.plan, "edge-a0", via=region.via))
        await until(lambda: region.exact(first))
        async with region_edge(region.plan, "edge-a1", via=region.via) as second:
            await until(lambda: second.fed_by == "edge-a0" and region.exact(second))
            await ending.aclose()
            await region.agent.edit({8: 1})
            await until(lambda: second.tier(8) == 1)
            assert second.fed_by == "unit-0"
            await until(lambda: region.exact(second))
            async with region_edge(region.plan, "edge-a0", via=region.via) as again:
                await until(lambda: second.fed_by == "edge-a0" and region.exact(second, again))
                await region.agent.edit({9: 2})
                await until(lambda: second.tier(9) == 2)
                await until(lambda: list(region.unit.unit.subscriber_lags()) == ["edge-a0"])
            assert second.follower.counters.snapshots == 1, "there was no gap"
            assert second.choice.fallbacks[ResubscribeReason.LOST] >= 1
            assert again.choice.fallbacks == {}
    assert region.unit.unit.counters.snapshots == 1, "it came back by way of its neighbour"


async def test_an_edge_of_the_version_before_has_no_such_service(region):
    async with (
        region_edge(region.plan, "edge-a0", via=region.via, serves=False) as old,
        region_edge(region.plan, "edge-a1", via=region.via) as new,
    ):
        await until(lambda: region.exact(old, new))
        assert new.fed_by == "unit-0"
        assert new.choice.fallbacks[ResubscribeReason.UNAVAILABLE] >= 1


async def test_a_snapshot_of_many_chunks_comes_from_a_neighbour_while_the_table_changes(region):
    async with region_edge(region.plan, "edge-a0", via=region.via, chunk_bytes=4_000) as first:
        await region.agent.edit(dict.fromkeys(range(100, 5_000), 1))
        await until(lambda: first.tier(4_999) == 1 and region.exact(first))
        snapshots = region.unit.unit.counters.snapshots
        async with region_edge(region.plan, "edge-a1", via=region.via, upstream="units") as second:
            key = 5_000
            while not second.follower.loaded:
                await region.agent.edit({key: 1})
                key += 1
            await region.agent.acknowledged()
            await until(lambda: second.fed_by == "unit-0" and region.exact(first, second))
            keys = np.arange(100, key, dtype=np.uint64)
            assert np.array_equal(second.view.lookup(keys), first.view.lookup(keys))
        assert first.relay.counters.snapshots == 1
        assert first.relay.counters.payload_bytes > 4_000
        assert region.unit.unit.counters.snapshots == snapshots


async def test_an_edge_that_knows_nothing_says_so_and_one_that_follows_an_edge_too(region):
    async with region_edge(
        region.plan, "edge-a0", via={region.plan.units[0].address: free_address()}, bootstrap="units"
    ) as empty:
        assert await answer(empty, region.request()) == Unavailable(UnavailableReason.NOT_EXACT)
    async with region_edge(region.plan, "edge-a0", via=region.via) as first:
        await until(lambda: region.exact(first))
        async with region_edge(region.plan, "edge-a1", via=region.via) as second:
            await until(lambda: second.fed_by == "edge-a0" and region.exact(second))
            assert await answer(second, region.request()) == Unavailable(UnavailableReason.FOLLOWS_EDGE)


async def test_what_cannot_be_served_is_refused_by_name(region):
    async with region_edge(region.plan, "edge-a0", via=region.via, subscriptions=0) as first:
        await until(lambda: region.exact(first))
        for request, field in (
            (region.request(shard=1), "shard"),
            (region.request("edge-a0"), "component_id"),
            (region.request(), "subscriptions"),
            (
                replace(region.request(), handshake=replace(region.request().handshake, plan_version=3)),
                "plan_version",
            ),
        ):
            refusal = await answer(first, request)
            assert isinstance(refusal, Refusal)
            assert refusal.field == field


async def test_an_edge_takes_no_reports_of_workers(region):
    async with region_edge(region.plan, "edge-a0", via=region.via) as first:
        async with Dialer({}).channel(first.place.grpc_address) as channel:
            call = rpc.report(channel)()
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await rpc.read(call)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_an_edge_says_who_feeds_it_and_serves_where_it_listens_for_loads(monkeypatch):
    async with fleet(monkeypatch) as running:
        async with running.client() as client:
            state = (await client.get("/v1/kvcompass/state")).json()
        told = {"source": "unit", "fed_by": "unit-0", "fallbacks": {}, "relay_subscribers": 0}
        assert [{name: shard[name] for name in told} for shard in state["shards"]] == [told]
        assert running.metric("us", "view_source", shard="0", source="unit") == 1
        assert running.metric("us", "view_source", shard="0", source="edge") == 0
        handshake = Handshake("edge-a9", 1, PROTOCOL_VERSION, 1, {})
        address = running.plan.edges[0].grpc_address
        assert await first_answer(address, SubscribeRequest(handshake, 0, 0)) == Unavailable(
            UnavailableReason.NOT_EXACT
        )
        assert running.metric("us", "relay_unavailable_total", shard="0") == 1


@pytest.mark.parametrize("field", ["log_bytes", "subscriptions"])
def test_bounds_of_a_relay_are_above_zero(field):
    settings = EdgeSettings(id="us", plan="", peer_key=PEER_KEY, lab_mode=True, relay=Relay(**{field: 0}))
    with pytest.raises(SettingsError, match="at least 1") as raised:
        check_settings(settings)
    assert raised.value.field == f"relay.{field}"


async def answer(edge: RegionEdge, request: SubscribeRequest) -> object:
    return await first_answer(edge.place.grpc_address, request)


async def first_answer(address: str, request: SubscribeRequest) -> object:
    async with Dialer({}).channel(address) as channel:
        call = rpc.subscribe(channel)()
        await call.write(request)
        message = await rpc.read(call)
        call.cancel()
        return message
