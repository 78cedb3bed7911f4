"""A process that a test stops: `python -m tests.services.frozen_peer unit`, or `edge ADDRESS`.

The unit welcomes whoever reports and says nothing more. The edge subscribes to the unit at an address, and
reads. Each prints a line once it is up: the unit its port, the edge a word after its first message.
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from kvcompass.plan.layout import layout_fields
from kvcompass.roles.messages import (
    PROTOCOL_VERSION,
    AgentToUnit,
    EdgeToUnit,
    Handshake,
    SubscribeRequest,
    Welcome,
)
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.wire import rpc
from tests.models.replication_fleet import replication_plan


class _Unit:
    async def report(self, messages: AsyncIterator[AgentToUnit], context: rpc.Context) -> None:
        async for _ in messages:
            await context.write(Welcome(1, 3_000, full_report_wanted=False))

    async def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: rpc.Context) -> None:
        raise NotImplementedError


async def _serve() -> None:
    _, port = await serve_grpc(lambda server: rpc.register_index_maintenance(server, _Unit()), "127.0.0.1:0")
    print(port, flush=True)  # noqa: T201
    await asyncio.Event().wait()


async def _follow(address: str) -> None:
    layout = layout_fields(replication_plan())
    async with Dialer({}).channel(address) as channel:
        call = rpc.subscribe(channel)()
        await call.write(SubscribeRequest(Handshake("edge-a", 1, PROTOCOL_VERSION, 1, layout), 0, 0))
        while await rpc.read(call) is not None:
            print("follows", flush=True)  # noqa: T201


if __name__ == "__main__":
    asyncio.run(_serve() if sys.argv[1] == "unit" else _follow(sys.argv[2]))
