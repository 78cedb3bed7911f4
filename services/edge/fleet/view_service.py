"""Serves the shards of this edge's view to other edges of its region, as units serve them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, NoReturn

from kvcompass.roles.messages import EdgeToUnit, Refusal, SubscribeRequest
from kvcompass.roles.view_relay import ViewRelay
from services.replication.pulse import Pulse
from services.replication.served_stream import Published, StreamRules, serve_subscription
from services.wire.rpc import Context

_RULES: Final = StreamRules(hello_timeout_s=10.0, flush_s=0.0)
"""The unit has collected its changes already."""
_TICK_S: Final = 0.05
"""A new snapshot waits so long, at most, for its copying to go on."""
_BUSY_TICK_S: Final = 0.001
"""While a view is copied: the rest of the time is the requests'."""


class ViewService:
    """`services.wire.rpc.ViewSubscriptions`."""

    def __init__(self, relays: Sequence[ViewRelay], clock: Callable[[], int]) -> None:
        """`relays`: one a shard, in order."""
        self._relays = relays
        self._clock = clock
        self._changed = [Pulse() for _ in relays]

    def changed(self, shard: int) -> None:
        """There may be something to pass on, or to end."""
        self._changed[shard].beat()

    async def subscribe(self, messages: AsyncIterator[EdgeToUnit], context: Context) -> None:
        """One stream a (subscriber, shard)."""
        await serve_subscription(messages, self._published, context.write, self._clock, _RULES)

    async def copy(self) -> NoReturn:
        """Goes on with copying what snapshots are made of, for ever."""
        while True:
            busy = False
            for relay, changed in zip(self._relays, self._changed, strict=True):
                if relay.is_copying:
                    relay.copy_part()
                    busy = busy or relay.is_copying
                    changed.beat()
            await asyncio.sleep(_BUSY_TICK_S if busy else _TICK_S)

    def _published(self, request: SubscribeRequest) -> Published | Refusal:
        if request.shard >= len(self._relays):
            return Refusal("shard", f"there is no shard {request.shard} here, but {len(self._relays)}")
        return Published(self._relays[request.shard], self._changed[request.shard])
