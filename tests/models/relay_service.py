"""Edges of one region as they feed and serve their views, over real gRPC on loopback."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import grpc.aio
import numpy as np

from kvcompass.index import IndexView, index_shape
from kvcompass.plan.layout import layout_fields
from kvcompass.plan.model import Plan
from kvcompass.roles.desk_bounds import DeskBounds
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.messages import PROTOCOL_VERSION, Handshake
from kvcompass.roles.shard_feed import ShardFeed
from kvcompass.roles.upstream_choice import Bootstrap, Upstream, UpstreamChoice
from kvcompass.roles.view_relay import ViewRelay
from services.edge.fleet.index_feed import IndexFeed
from services.edge.fleet.view_service import ViewService
from services.runtime.epoch import new_epoch, now_us
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.wire import rpc
from tests.models.replication_service import compile_kernels


class RegionEdge:
    """As much of an edge as knows the index. Its one shard is followed from the moment it is entered."""

    def __init__(self, plan: Plan, name: str, bootstrap: Bootstrap, upstream: Upstream, bounds: DeskBounds):
        compile_kernels()
        self.name = name
        self.place = next(edge for edge in plan.edges if edge.id == name)
        self.view = IndexView(index_shape(plan))
        layout = layout_fields(plan)
        handshake = Handshake(name, new_epoch(), PROTOCOL_VERSION, plan.plan_version, layout)
        self.follower = IndexFollower(0, self.view, handshake, stale_after_us=3_000_000)
        self.relay = ViewRelay(
            self.follower,
            self.view,
            edge_id=name,
            layout=layout,
            plan_version=plan.plan_version,
            bounds=bounds,
        )
        self.choice = UpstreamChoice(plan, name, 0, bootstrap=bootstrap, upstream=upstream)
        self.service = ViewService((self.relay,), now_us)
        self.server: grpc.aio.Server

    @property
    def state(self) -> FollowerState:
        return self.follower.state(now_us())

    @property
    def fed_by(self) -> str:
        return self.choice.source.id

    def tier(self, key: int, table: int = 0, slot: int = 0) -> int:
        return int(self.view.lookup(np.array([key], np.uint64))[0, table]) >> (2 * slot) & 3


@asynccontextmanager
async def region_edge(
    plan: Plan,
    name: str,
    *,
    via: dict[str, str] | None = None,
    bootstrap: Bootstrap = "peer",
    upstream: Upstream = "edge",
    serves: bool = True,
    **bounds: int,
) -> AsyncIterator[RegionEdge]:
    """`via`: plan address -> where it is really. `serves`: False for an edge of the version before."""
    edge = RegionEdge(plan, name, bootstrap, upstream, DeskBounds(**bounds))

    def register(server: grpc.aio.Server) -> None:
        if serves:
            rpc.register_view_subscriptions(server, edge.service)

    edge.server, _ = await serve_grpc(register, edge.place.grpc_address)
    feed = IndexFeed(
        ShardFeed(edge.relay, edge.choice, random.Random(1)),
        Dialer(via or {}),
        partial(edge.service.changed, 0),
    )
    tasks = [asyncio.create_task(feed.run()), asyncio.create_task(edge.service.copy())]
    try:
        yield edge
    finally:
        for task in tasks:
            task.cancel()
        await edge.server.stop(0)
        await asyncio.gather(*tasks, return_exceptions=True)
