"""A unit behind real gRPC on loopback, an agent that talks to it, and an edge's feed into a real view."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import grpc.aio
import numpy as np

from kvcompass.index import IndexView, ShardTables, index_shape
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    Acknowledgement,
    AgentToUnit,
    FullReport,
    Handshake,
    Refusal,
    ReportRequest,
    UnitToAgent,
    UnitToEdge,
    Welcome,
)
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.upstream_choice import UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from kvcompass.warm import warm
from services.edge.fleet.index_feed import IndexFeed
from services.maintenance.patch_loss import PatchLoss
from services.maintenance.service import IndexService
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.settings import TlsSettings
from services.wire import rpc
from tests.models.replication_agent import TwinAgent

_epochs = iter(range(1_000, 1_000_000))
compile_kernels = cache(warm)
"""Before any wait with a bound: the first call may take a minute."""


async def until(condition: Callable[[], bool], bound_s: float = 10.0) -> None:
    """Waits for what must come; a test that waits in vain fails here."""
    async with asyncio.timeout(bound_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@dataclass
class Served:
    unit: MaintenanceUnit
    service: IndexService
    server: grpc.aio.Server
    address: str


@asynccontextmanager
async def served(
    plan: Plan,
    address: str = "127.0.0.1:0",
    loss: PatchLoss | None = None,
    tls: TlsSettings | None = None,
    **bounds: int,
) -> AsyncIterator[Served]:
    compile_kernels()
    shape = index_shape(plan)
    unit = MaintenanceUnit(
        plan,
        "unit-0",
        epoch=next(_epochs),
        layout=layout_fields(plan),
        tables=ShardTables(shape, 0, random_seed=1),
        now_us=now_us(),
        bounds=UnitBounds(**{"watermark_period_us": 100_000, **bounds}),
    )
    service = IndexService(unit, now_us, flush_s=0.002, hello_timeout_s=1.0, loss=loss)
    server, port = await serve_grpc(lambda s: rpc.register_index_maintenance(s, service), address, tls)
    ticking = asyncio.create_task(service.tick())
    try:
        yield Served(unit, service, server, f"127.0.0.1:{port}")
    finally:
        ticking.cancel()
        await server.stop(0)
        await asyncio.gather(ticking, return_exceptions=True)


class ConnectedAgent:
    """Sends what a test tells it to; answers report requests by itself."""

    def __init__(self, agent: TwinAgent, call: grpc.aio.StreamStreamCall[AgentToUnit, UnitToAgent]) -> None:
        self.agent = agent
        self.call = call
        self.answers: list[UnitToAgent] = []

    async def send(self, message: AgentToUnit) -> None:
        async with asyncio.timeout(5):
            await self.call.write(message)

    async def edit(self, tiers: dict[int, int]) -> None:
        await self.send(self.agent.edit(tiers))

    async def acknowledged(self) -> None:
        await until(lambda: Acknowledgement(self.agent.sequence) in self.answers)

    async def answer(self) -> None:
        while (message := await rpc.read(self.call)) is not None:
            self.answers.append(message)
            wanted = isinstance(message, Welcome) and message.full_report_wanted
            if wanted or isinstance(message, ReportRequest):
                for chunk in self.agent.full_report():
                    assert isinstance(chunk, FullReport)
                    await self.send(chunk)


@asynccontextmanager
async def connected(
    agent: TwinAgent, address: str, tls: TlsSettings | None = None
) -> AsyncIterator[ConnectedAgent]:
    async with Dialer({}, tls).channel(address) as channel:
        call = rpc.report(channel)()
        stub = ConnectedAgent(agent, call)
        await stub.send(agent.hello())
        answering = asyncio.create_task(stub.answer())
        await until(lambda: bool(stub.answers))
        assert not isinstance(stub.answers[0], Refusal), stub.answers
        try:
            yield stub
        finally:
            answering.cancel()
            call.cancel()
            await asyncio.gather(answering, return_exceptions=True)


class NotingFollower(IndexFollower):
    """Keeps the states it went through."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.states: list[FollowerState] = []

    def on_message(self, message: UnitToEdge, now_us: int) -> Resubscribe | None:
        ended = super().on_message(message, now_us)
        self._note(now_us)
        return ended

    def stream_ended(self, reason: ResubscribeReason) -> None:
        super().stream_ended(reason)
        self._note(now_us())

    def _note(self, now_us: int) -> None:
        state = self.state(now_us)
        if self.states[-1:] != [state]:
            self.states.append(state)


class FollowingEdge:
    def __init__(self, plan: Plan, address: str, stale_after_us: int) -> None:
        self.view = IndexView(index_shape(plan))
        handshake = Handshake(
            "edge-a", next(_epochs), PROTOCOL_VERSION, plan.plan_version, layout_fields(plan)
        )
        self.follower = NotingFollower(0, self.view, handshake, stale_after_us=stale_after_us)
        self.relay = ViewRelay(
            self.follower,
            self.view,
            edge_id="edge-a",
            layout=layout_fields(plan),
            plan_version=plan.plan_version,
        )
        self._plan = plan
        self._dialer = Dialer({plan.units[0].address: address})

    @asynccontextmanager
    async def feed(self) -> AsyncIterator["FollowingEdge"]:
        """Follows until the context ends; may be entered again."""
        choice = UpstreamChoice(self._plan, "edge-a", 0)
        feed = IndexFeed(ShardFeed(self.relay, choice, random.Random(1)), self._dialer)
        feeding = asyncio.create_task(feed.run())
        try:
            yield self
        finally:
            feeding.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await feeding

    @property
    def states(self) -> list[FollowerState]:
        return self.follower.states

    @property
    def state(self) -> FollowerState:
        return self.follower.state(now_us())

    def tier(self, key: int, table: int = 0, slot: int = 0) -> int:
        return int(self.view.lookup(np.array([key], np.uint64))[0, table]) >> (2 * slot) & 3


def following(
    plan: Plan, address: str, stale_after_us: int = 1_000_000
) -> AbstractAsyncContextManager[FollowingEdge]:
    return FollowingEdge(plan, address, stale_after_us).feed()
