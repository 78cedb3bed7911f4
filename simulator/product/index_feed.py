"""How an edge's view follows a unit: a stream of its own, messages applied as they come."""

from typing import Final, Protocol

from kvcompass.roles.index_follower import IndexFollower, Resubscribe, ResubscribeReason
from kvcompass.roles.messages import PatchGroups, SubscribeRequest, UnitToEdge
from simulator.product import sizes
from simulator.product.backoff import Backoff
from simulator.product.unit_node import UnitNode
from simulator.router import Site


class IndexFeed(Protocol):
    """Feeds one shard of one edge's view."""

    @property
    def follower(self) -> IndexFollower:
        """What it feeds."""

    @property
    def unit(self) -> UnitNode:
        """What it follows."""

    def open(self) -> None:
        """At the unit, when the run begins: subscribe. The snapshot is there at once."""

    def start(self) -> None:
        """At the edge, when the run begins."""

    def catch_up(self, now_us: int) -> None:
        """See that the view has all that arrived until now."""


class OwnStream:
    """A Subscribe stream of the edge's own, as `services.edge.fleet.index_feed` keeps one (`--faithful`)."""

    def __init__(
        self, site: Site, follower: IndexFollower, unit: UnitNode, region: int, backoff: Backoff
    ) -> None:
        self.follower: Final = follower
        self._site = site
        self.unit: Final = unit
        self._region = region
        self._backoff = backoff
        self._attempt = 0
        self._sent_attempt = 0
        self._heard_us = 0
        self._acknowledged = 0
        self._beginning = True

    # --- at the edge ------------------------------------------------------------------------------

    def start(self) -> None:
        """Notice when nothing comes any more."""
        self._listen(self._attempt)

    def catch_up(self, now_us: int) -> None:
        """Messages are applied as they come."""

    def _dial(self) -> None:
        self._attempt += 1
        self._heard_us = self._site.now_us
        request = self.follower.subscribe_request()
        reached = self._site.send_reliably(
            self.unit.region, self._dialled, sizes.HANDSHAKE, (self._attempt, request)
        )
        if not reached:
            self._end(Resubscribe(ResubscribeReason.LOST, "the unit cannot be reached"))
            return
        self._listen(self._attempt)

    def _heard(self, attempt: int, message: UnitToEdge) -> None:
        if attempt != self._attempt:
            return
        follower = self.follower
        self._heard_us = self._site.now_us
        ended = follower.on_message(message, self._heard_us)
        if ended is not None:
            self._end(ended)
        elif not isinstance(message, PatchGroups) and follower.applied_sequence != self._acknowledged:
            self._acknowledged = follower.applied_sequence
            self._site.send_reliably(
                self.unit.region,
                self.unit.acknowledged,
                sizes.ACKNOWLEDGEMENT,
                (self, follower.acknowledgement()),
            )

    def _listen(self, attempt: int) -> None:
        """Give the stream up after so long a silence."""
        if attempt != self._attempt:
            return
        quiet_us = self.follower.stale_after_us - (self._site.now_us - self._heard_us)
        if quiet_us <= 0:
            self._end(Resubscribe(ResubscribeReason.SILENCE, "nothing came"))
        else:
            self._site.after(quiet_us, self._listen, attempt)

    def _end(self, ended: Resubscribe) -> None:
        if self.follower.was_exact:
            self._backoff.reset()
        self.follower.stream_ended(ended.reason)
        self._attempt += 1
        self._site.after(self._backoff.next_us(), self._dial)

    # --- at the unit ------------------------------------------------------------------------------

    def open(self) -> None:
        """Subscribe at once."""
        self.unit.subscribe(self.follower.subscribe_request(), self)
        self.unit.hurry()
        self._beginning = False

    def _dialled(self, attempt: int, request: SubscribeRequest) -> None:
        self._sent_attempt = attempt
        self.unit.subscribe(request, self)

    def deliver(self, message: UnitToEdge) -> bool:
        """Send it to the edge."""
        if self._beginning:
            self._heard(self._sent_attempt, message)
            return True
        return self._carry(self._sent_attempt, message)

    def _carry(self, attempt: int, message: UnitToEdge) -> bool:
        return self._site.send_reliably(
            self._region, self._heard, sizes.unit_to_edge(message), (attempt, message)
        )
