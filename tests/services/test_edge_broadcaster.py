"""How long an edge waits before it dials a peer again, and what it says of one that it cannot reach."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.backoff import FIRST_PAUSE_US, LONGEST_PAUSE_US, REFUSED_US, Backoff
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.messages import PROTOCOL_VERSION, STREAM_FIELD, Acknowledgement, Handshake, Refusal
from services.edge.fleet import load_broadcaster
from services.edge.fleet.load_broadcaster import LoadBroadcaster
from services.edge.metrics import EdgeMetrics
from services.runtime.grpc_transport import Dialer
from services.runtime.new_backoff import new_backoff
from tests.models.routing_fleets import FakeLookup, make_plan
from tests.services.edge_fleet import eventually, fleet

TAKEN = Acknowledgement(1)
ENDED = grpc.aio.EOF
REFUSED = Refusal("quantum", "64 here")
REPLACED = Refusal(STREAM_FIELD, "a newer stream has taken its place")


class Call:
    """A stream on which the peer says what it has to say, then breaks it; None: it stays open."""

    def __init__(self, said: list[Any] | None) -> None:
        self._said = said

    async def write(self, _message: Any) -> None:
        pass

    async def read(self) -> Any:
        if self._said is None:
            await asyncio.Event().wait()
        if not self._said:
            raise asyncio.InvalidStateError
        return self._said.pop(0)

    def cancel(self) -> None:
        pass


class Peers(Dialer):
    """All peers say the same, on one stream after the other."""

    def __init__(self, streams: list[list[Any]]) -> None:
        super().__init__({})
        self._streams = streams

    @asynccontextmanager
    async def channel(self, address: str) -> AsyncIterator[Any]:
        left = [list(said) for said in self._streams]
        yield lambda: Call(left.pop(0) if left else None)


async def pauses(monkeypatch: pytest.MonkeyPatch, *streams: list[Any]) -> list[list[int]]:
    """What an edge waits after each of these streams, us, for each of its two peers."""
    waited: list[list[int]] = []

    class Recorded(Backoff):
        def __init__(self) -> None:
            super().__init__(new_backoff()._jitter)
            self.mine: list[int] = []
            waited.append(self.mine)

        def next_us(self, least_us: int = 0) -> int:
            self.mine.append(super().next_us(least_us))
            return 0

    def exchange_load(channel: Callable[[], Call]) -> Callable[[], Call]:
        return channel

    monkeypatch.setattr(load_broadcaster, "new_backoff", Recorded)
    monkeypatch.setattr(load_broadcaster, "exchange_load", exchange_load)
    plan = make_plan()
    edge = plan.edges[0]
    role = EdgeRole(plan, edge.id, FakeLookup(len(plan.workers)), epoch=1)
    handshake = Handshake(edge.id, 1, PROTOCOL_VERSION, plan.plan_version, layout_fields(plan))
    metrics = EdgeMetrics(CollectorRegistry())
    broadcaster = LoadBroadcaster(plan, edge.region, role, handshake, Peers([*streams]), metrics)
    running = asyncio.create_task(broadcaster.run())
    try:
        await eventually(lambda: [len(mine) for mine in waited] == [len(streams)] * 2)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return waited


async def test_peers_that_are_lost_at_once_are_not_dialled_again_at_once(monkeypatch):
    one, other = await pauses(monkeypatch, *[[]] * 12)
    assert one != other
    for mine in (one, other):
        assert mine[0] <= FIRST_PAUSE_US
        assert LONGEST_PAUSE_US / 2 <= mine[-1] <= LONGEST_PAUSE_US, "a heal is noticed within this time"


@pytest.mark.parametrize("first", [[], [ENDED], [REPLACED]], ids=["broken", "ended", "refused"])
async def test_only_a_peer_that_was_reached_is_dialled_soon_again(monkeypatch, first):
    for mine in await pauses(monkeypatch, *[first] * 12, [TAKEN], []):
        assert mine[11] >= LONGEST_PAUSE_US / 2
        assert mine[12] <= FIRST_PAUSE_US
        assert mine[13] <= 2 * FIRST_PAUSE_US


async def test_a_refusal_of_what_the_edge_is_lasts_and_one_of_its_stream_does_not(monkeypatch):
    for mine in await pauses(monkeypatch, [REFUSED], [TAKEN], [REPLACED]):
        assert mine[0] >= REFUSED_US / 2
        assert mine[2] <= 4 * FIRST_PAUSE_US


async def test_a_peer_that_cannot_be_reached_is_told_of_with_its_status(monkeypatch):
    async with fleet(monkeypatch) as lab:
        lost = lab.edges["us"]._broadcaster._lost
        await eventually(lambda: set(lost) == {"eu", "asia"})
        assert all(reason.startswith("UNAVAILABLE: ") for reason in lost.values())
