"""An edge follows another one of its region under mutual TLS: whole edges, certificates of the fleet's CA."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Edge, MaintenanceUnit, Plan
from kvcompass.roles import upstream_choice
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake, SubscribeRequest
from services.edge.composition import EdgeService
from services.edge.settings import EdgeSettings, Timeouts
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.lifecycle import Lifecycle
from services.runtime.settings import TlsSettings
from services.wire import rpc
from tests.models.fleet_authority import FleetAuthority
from tests.models.ports import free_address
from tests.models.replication_agent import TwinAgent
from tests.models.replication_fleet import WORKERS, replication_plan
from tests.models.replication_service import ConnectedAgent, Served, connected, served, until
from tests.services.edge_fleet import PEER_KEY


@dataclass
class Region:
    plan: Plan
    authority: FleetAuthority
    unit: Served
    agent: ConnectedAgent

    @asynccontextmanager
    async def edge(self, number: int) -> AsyncIterator[EdgeService]:
        """A whole edge runs, and drains at the end."""
        name = self.plan.edges[number].id
        settings = EdgeSettings(
            id=name,
            plan="",
            lab_mode=True,
            peer_key=PEER_KEY,
            bootstrap="peer",
            upstream="edge",
            tls=self.authority.tls(name),
            timeouts=Timeouts(unready_s=0, drain_s=1),
        )
        service, lifecycle = EdgeService(settings, self.plan, Path()), Lifecycle()
        running = asyncio.create_task(service.run(lifecycle))
        try:
            yield service
        finally:
            lifecycle.stop()
            await running
            await lifecycle.close()

    def is_fed(self, edge: EdgeService, by: str) -> bool:
        """Its view is exact, at the unit's sequence and digest, and this one feeds it."""
        shard = edge.state()["shards"][0]
        unit = self.unit.unit
        return (shard["fed_by"], shard["state"]) == (by, "exact") and (
            edge.followers[0].applied_sequence,
            edge.followers[0].digest,
        ) == (unit.sequence, unit.digest)


@pytest.fixture
async def region(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Region]:
    monkeypatch.setattr(upstream_choice, "RETURN_AFTER_US", 300_000)
    authority = FleetAuthority(tmp_path / "ours")
    tls, at = authority.tls("unit-0"), free_address()
    edges = tuple(Edge(f"edge-a{n}", "a", free_address(), free_address(), free_address()) for n in range(2))
    plan = replace(replication_plan(), edges=edges, units=(MaintenanceUnit("unit-0", 0, "a", at),))
    layout = layout_fields(plan)
    async with AsyncExitStack() as ending:
        unit = await ending.enter_async_context(served(plan, at, tls=tls))
        for worker in WORKERS[1:]:
            async with connected(TwinAgent(worker, layout), at, authority.tls(worker)):
                pass
        twin = TwinAgent("a-0", layout, holdings={5: 1, 6: 2})
        agent = await ending.enter_async_context(connected(twin, at, authority.tls("a-0")))
        await until(lambda: unit.unit.settled)
        yield Region(plan, authority, unit, agent)


async def test_one_stream_of_the_unit_feeds_a_region_under_tls(region: Region) -> None:
    async with AsyncExitStack() as ending:
        first = await ending.enter_async_context(region.edge(0))
        await until(lambda: region.is_fed(first, "unit-0"))
        assert first.registry.get_sample_value("kvcompass_tls_not_after_seconds", {"file": "cert"})
        async with region.edge(1) as second:
            await until(lambda: region.is_fed(second, "edge-a0"))
            assert region.unit.unit.counters.snapshots == 1, "the second has its own from its neighbour"
            await region.agent.edit({5: 0, 7: 1})
            await region.agent.acknowledged()
            await until(lambda: region.is_fed(second, "edge-a0"))
            assert list(region.unit.unit.subscriber_lags()) == ["edge-a0"]
            assert first.state()["shards"][0]["relay_subscribers"] == 1
            await ending.aclose()
            await until(lambda: region.is_fed(second, "unit-0"))
            async with region.edge(0) as again:
                await until(lambda: region.is_fed(again, "unit-0"))
                await until(lambda: region.is_fed(second, "edge-a0"))
    assert region.unit.unit.counters.snapshots == 1


async def test_who_has_no_certificate_of_the_fleet_is_told_nothing_by_an_edge(
    region: Region, tmp_path: Path
) -> None:
    async with region.edge(0) as first:
        await until(lambda: region.is_fed(first, "unit-0"))
        for tls in (FleetAuthority(tmp_path / "theirs").tls("edge-a1"), None):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await first_word(region, tls)
            assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert first.state()["shards"][0]["relay_subscribers"] == 0
        assert await first_word(region, region.authority.tls("edge-a1")) is not None


async def test_an_edge_is_fed_by_nobody_without_a_certificate_of_the_fleet(
    region: Region, tmp_path: Path
) -> None:
    """Somebody listens at its neighbour's address."""
    stranger: list[Any] = []

    class Impostor:
        async def subscribe(self, messages: Any, _context: Any) -> None:
            stranger.append(await anext(messages))

    place, tls = region.plan.edges[0], FleetAuthority(tmp_path / "theirs").tls("edge-a0")
    server, _ = await serve_grpc(
        lambda server: rpc.register_view_subscriptions(server, Impostor()), place.grpc_address, tls
    )
    try:
        async with region.edge(1) as second:
            await until(lambda: region.is_fed(second, "unit-0"))
            assert second.state()["shards"][0]["fallbacks"]
    finally:
        await server.stop(0)
    assert not stranger


async def first_word(region: Region, tls: TlsSettings | None) -> Any:
    """What the first edge says to whoever asks it for the shard. Errors: AioRpcError."""
    handshake = Handshake("edge-a1", 1, PROTOCOL_VERSION, 1, layout_fields(region.plan))
    async with Dialer({}, tls).channel(region.plan.edges[0].grpc_address) as channel:
        call = rpc.subscribe(channel)()
        async with asyncio.timeout(5):
            await call.write(SubscribeRequest(handshake, 0, 0))
            return await rpc.read(call)
