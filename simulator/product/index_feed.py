"""How an edge's view follows a unit: a stream of its own, messages applied as they come."""

from typing import Final, Protocol

from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import UnitToEdge
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_feed import ShardFeed
from simulator.clock import Action
from simulator.place import Place
from simulator.product import sizes
from simulator.product.unit_node import UnitNode


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
    """A Subscribe stream of the edge's own, as `services.edge.fleet` carries one (`--faithful`)."""

    def __init__(self, site: Place, feed: ShardFeed, unit: UnitNode, region: int) -> None:
        """`feed` follows the unit, and no edge."""
        self.follower: Final = feed.follower
        self._feed = feed
        self._site = site
        self.unit: Final = unit
        self._region = region
        self.attempt = 0
        """The present one, at the edge."""
        self.sent_attempt = 0
        """At the unit: the newest that it has heard of."""
        self.is_open = True
        """Opened, as far as the edge knows."""
        self._beginning = True

    # --- at the edge ------------------------------------------------------------------------------

    @property
    def far_end(self) -> Action:
        """What tells the unit that an attempt of this stream has ended."""
        return self.unit.edge_hung_up

    def start(self) -> None:
        """Notice when nothing comes any more."""
        self._listen(self.attempt)

    def catch_up(self, now_us: int) -> None:
        """Messages are applied as they come."""

    def dial(self) -> None:
        """Open the stream."""
        self._beginning = False
        self.attempt += 1
        self.is_open = True
        request = self._feed.open(self._site.now_us).request
        reached = self._site.send_reliably(
            self.unit.region, self.unit.edge_dialled, sizes.HANDSHAKE, (self, self.attempt, request)
        )
        if not reached:
            self._over(Resubscribe(ResubscribeReason.LOST, "the unit cannot be reached"))
            return
        self._listen(self.attempt)

    def hung_up(self, attempt: int) -> None:
        """The connection broke."""
        if self.is_open and attempt == self.attempt:
            self._over(Resubscribe(ResubscribeReason.LOST, "the connection broke"))

    def _heard(self, attempt: int, message: UnitToEdge) -> None:
        if attempt != self.attempt:
            return
        answer = self._feed.on_message(message, self._site.now_us)
        if isinstance(answer, Resubscribe):
            self._over(answer)
        elif answer is not None:
            unit = self.unit
            self._site.send_reliably(
                unit.region, unit.acknowledged, sizes.ACKNOWLEDGEMENT, (self, attempt, answer)
            )

    def _listen(self, attempt: int) -> None:
        """Give the stream up after so long a silence."""
        if attempt != self.attempt:
            return
        quiet_us = self._feed.silent_at_us - self._site.now_us
        if quiet_us <= 0:
            self._over(self._feed.silence())
        else:
            self._site.after(quiet_us, self._listen, attempt)

    def _over(self, ended: Resubscribe) -> None:
        pause_us = self._feed.ended(ended, self._site.now_us).pause_us
        self._site.send_reliably(self.unit.region, self.far_end, 0, (self, self.attempt))
        self.attempt += 1
        self.is_open = False
        self._site.after(pause_us, self.dial)

    # --- at the unit ------------------------------------------------------------------------------

    def open(self) -> None:
        """Subscribe at once."""
        self.unit.subscribe(self._feed.open(self._site.now_us).request, self)
        self.unit.hurry()
        self._beginning = False

    def deliver(self, message: UnitToEdge) -> bool:
        """Send it to the edge."""
        if self._beginning:
            self._heard(self.sent_attempt, message)
            return True
        return self._carry(self.sent_attempt, message)

    def _carry(self, attempt: int, message: UnitToEdge) -> bool:
        return self._site.send_reliably(
            self._region, self._heard, sizes.unit_to_edge(message), (attempt, message)
        )
