"""An edge as others follow it: `services.edge.fleet.view_service` for one shard."""

from collections.abc import Callable
from typing import Final

from kvcompass.roles.messages import (
    Acknowledgement,
    Refusal,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
)
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.view_relay import ViewRelay
from simulator.errors import SimulationError
from simulator.place import Place
from simulator.product.periods import BUSY_TICK_US
from simulator.product.unit_node import EdgeStream

_AGAIN_US: Final = 1_000_000
"""A stream that has nothing to send is looked at again so soon: a watermark's period."""


class ViewServer:
    """An address: the relay behind it is that of the incarnation that runs."""

    def __init__(self, site: Place, region: int, *, plans_change: bool) -> None:
        """`plans_change`: that it refuses another edge is no error of the simulation's."""
        self.region: Final = region
        self.on_serving: Callable[[UnitToEdge], None] | None = None
        """Told of each message when it is sent."""
        self._site = site
        self._plans_change = plans_change
        self._relay: ViewRelay | None = None
        self._subscribers: dict[EdgeStream, Subscription] = {}
        self._copying = False
        self._looking = False

    def restart(self, relay: ViewRelay) -> None:
        """Another process stands at this address, and knows of no stream."""
        self._relay = relay
        self._subscribers.clear()
        self._copying = self._looking = False

    def edge_dialled(self, stream: EdgeStream, attempt: int, request: SubscribeRequest) -> None:
        """A Subscribe stream begins. A request that comes late or again is passed over."""
        if attempt <= stream.sent_attempt:
            return
        stream.sent_attempt = attempt
        assert self._relay is not None
        self._drop(stream)
        opened = self._relay.subscribe(request, self._site.now_us)
        if isinstance(opened, Refusal) and not self._plans_change:
            raise SimulationError(f"an edge refuses another: {opened.message}", field=opened.field)
        if isinstance(opened, Refusal | Unavailable):
            stream.deliver(opened)
            return
        self._subscribers[stream] = opened
        self.changed()
        if not self._looking:
            self._looking = True
            self._site.after(_AGAIN_US, self._look)

    def edge_hung_up(self, stream: EdgeStream, attempt: int) -> None:
        """A Subscribe stream has ended."""
        if attempt >= stream.sent_attempt:
            stream.sent_attempt = attempt
            self._drop(stream)

    def acknowledged(self, stream: EdgeStream, attempt: int, acknowledgement: Acknowledgement) -> None:
        """A subscriber's view is exact up to a sequence."""
        subscription = self._subscribers.get(stream)
        if subscription is not None and attempt == stream.sent_attempt:
            assert self._relay is not None
            self._relay.acknowledged(subscription, acknowledgement)

    def changed(self) -> None:
        """There may be something to pass on, or to end."""
        relay = self._relay
        assert relay is not None
        for stream, subscription in list(self._subscribers.items()):
            while batch := relay.take(subscription, self._site.now_us):
                if self.on_serving is not None:
                    for message in batch:
                        self.on_serving(message)
                sent = all(stream.deliver(message) for message in batch)
                if not sent or isinstance(batch[-1], Refusal | Unavailable):
                    self._drop(stream)
                    break
        if relay.is_copying and not self._copying:
            self._copying = True
            self._site.after(BUSY_TICK_US, self._copy)

    def _copy(self) -> None:
        relay = self._relay
        assert relay is not None
        self._copying = False
        relay.copy_part()
        self.changed()

    def _look(self) -> None:
        self._looking = bool(self._subscribers)
        if self._looking:
            self.changed()
            self._site.after(_AGAIN_US, self._look)

    def _drop(self, stream: EdgeStream) -> None:
        subscription = self._subscribers.pop(stream, None)
        if subscription is not None:
            assert self._relay is not None
            self._relay.unsubscribe(subscription)
