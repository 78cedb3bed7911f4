"""How an edge carries a shard's feed: what its log says, and which connections it keeps."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.roles import upstream_probe
from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake, SnapshotChunk, UnitToEdge
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from services.edge.fleet import index_feed
from services.runtime.grpc_transport import Dialer
from tests.models.relay_region import region_plan
from tests.models.replication_fleet import replication_plan
from tests.models.replication_service import until
from tests.models.replication_table import DictTables, DictView


@dataclass
class Stream:
    """Says what it has to say, then nothing."""

    messages: list[UnitToEdge]

    async def write(self, _message: Any) -> None:
        pass

    async def read(self) -> UnitToEdge:
        if not self.messages:
            await asyncio.Event().wait()
        return self.messages.pop(0)

    def cancel(self) -> None:
        pass


def exact() -> list[UnitToEdge]:
    tables = DictTables()
    return [SnapshotChunk(7, 1, tables.digest(), 0, 1, tables.snapshot())]


async def test_each_outage_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[dict[str, Any]] = []
    left: list[Callable[[], list[UnitToEdge]]] = [exact, list, list, exact]
    ended = asyncio.Event()

    class Log:
        def warning(self, _event: str, **facts: Any) -> None:
            warnings.append(facts)

    class NoDelay(random.Random):
        def uniform(self, _low: float, _high: float) -> float:
            return 0.0

    def subscribe(_channel: Any) -> Callable[[], Stream]:
        if not left:
            ended.set()
            return lambda: Stream([])
        return lambda: Stream(left.pop(0)())

    monkeypatch.setattr(index_feed, "_log", Log())
    monkeypatch.setattr(index_feed.rpc, "subscribe", subscribe)
    plan = replication_plan()
    handshake = Handshake("edge-a", 5, PROTOCOL_VERSION, 1, layout_fields(plan))
    follower = IndexFollower(0, DictView(), handshake, stale_after_us=50_000)
    relay = ViewRelay(follower, DictView(), edge_id="edge-a", layout=handshake.layout, plan_version=1)
    choice = UpstreamChoice(plan, "edge-a", 0)
    fed = ShardFeed(relay, choice, NoDelay(1))
    feed = asyncio.create_task(index_feed.IndexFeed(fed, Dialer({})).run())
    try:
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
    assert [facts["reason"] for facts in warnings] == ["silence"] * 2


async def test_a_stream_that_breaks_without_a_word_is_told_of_all_the_same(monkeypatch) -> None:
    details: list[str] = []

    class Log:
        def warning(self, _event: str, *, detail: str, **_facts: Any) -> None:
            details.append(detail)

    class Breaks(Stream):
        async def read(self) -> UnitToEdge:
            raise asyncio.InvalidStateError

    monkeypatch.setattr(index_feed, "_log", Log())
    monkeypatch.setattr(index_feed.rpc, "subscribe", lambda _channel: lambda: Breaks([]))
    plan = replication_plan()
    handshake = Handshake("edge-a", 5, PROTOCOL_VERSION, 1, layout_fields(plan))
    follower = IndexFollower(0, DictView(), handshake)
    relay = ViewRelay(follower, DictView(), edge_id="edge-a", layout=handshake.layout, plan_version=1)
    fed = ShardFeed(relay, UpstreamChoice(plan, "edge-a", 0), random.Random(1))
    feed = asyncio.create_task(index_feed.IndexFeed(fed, Dialer({})).run())
    try:
        await until(lambda: bool(details))
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
    assert details[0] == "InvalidStateError"


@pytest.mark.parametrize("hangs", ["write", "read"])
async def test_a_stream_that_stands_still_is_given_up(hangs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Still(Stream):
        async def write(self, _message: Any) -> None:
            if hangs == "write":
                await asyncio.Event().wait()

    monkeypatch.setattr(index_feed.rpc, "subscribe", lambda _channel: lambda: Still([]))
    plan = replication_plan()
    handshake = Handshake("edge-a", 5, PROTOCOL_VERSION, 1, layout_fields(plan))
    follower = IndexFollower(0, DictView(), handshake, stale_after_us=20_000)
    relay = ViewRelay(follower, DictView(), edge_id="edge-a", layout=handshake.layout, plan_version=1)
    fed = ShardFeed(relay, UpstreamChoice(plan, "edge-a", 0), random.Random(1))
    feed = asyncio.create_task(index_feed.IndexFeed(fed, Dialer({})).run())
    try:
        await until(lambda: follower.counters.resubscriptions.total() > 1)
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
    assert set(follower.counters.resubscriptions) == {ResubscribeReason.SILENCE}


class Channel:
    """To nowhere."""

    def __init__(self) -> None:
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False


async def test_the_connection_to_an_edge_that_has_left_the_plan_is_closed(monkeypatch):
    plan = region_plan(2)
    first, second = (edge for edge in plan.edges if edge.region == "a")
    channels: dict[str, Channel] = {}

    class Doubles(Dialer):
        def channel(self, address: str) -> Any:
            channels[address] = Channel()
            return channels[address]

    def subscribe(_channel: Channel) -> Callable[[], Stream]:
        return lambda: Stream(exact())

    monkeypatch.setattr(index_feed.rpc, "subscribe", subscribe)
    monkeypatch.setattr(upstream_probe, "LOOK_US", 10_000)
    handshake = Handshake(second.id, 5, PROTOCOL_VERSION, 1, layout_fields(plan))
    follower = IndexFollower(0, DictView(), handshake, stale_after_us=1_000_000)
    relay = ViewRelay(follower, DictView(), edge_id=second.id, layout=handshake.layout, plan_version=1)
    choice = UpstreamChoice(plan, second.id, 0, upstream="edge", bootstrap="peer")
    fed = ShardFeed(relay, choice, random.Random(1))
    feed = asyncio.create_task(index_feed.IndexFeed(fed, Doubles({})).run())
    try:
        await until(lambda: follower.loaded)
        assert set(channels) == {first.grpc_address}
        choice.apply_plan(replace(plan, edges=tuple(edge for edge in plan.edges if edge != first)))
        await asyncio.sleep(0.1)
        assert channels[first.grpc_address].is_open, "it is in use until its stream ends"
        await until(lambda: choice.source == choice.unit and len(channels) == 2)
        await until(lambda: not channels[first.grpc_address].is_open)
        assert channels[choice.unit.address].is_open
    finally:
        feed.cancel()
        await asyncio.gather(feed, return_exceptions=True)
    assert not channels[choice.unit.address].is_open
