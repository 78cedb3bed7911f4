"""A Subscribe stream that loses and delays what a unit sends, as the unit's own fault switch does."""

from random import Random
from typing import Final

from kvcompass.roles.messages import PatchGroups, UnitToEdge
from kvcompass.roles.shard_feed import ShardFeed
from simulator.impairment import Impairment
from simulator.product.index_feed import OwnStream
from simulator.product.unit_node import UnitNode
from simulator.router import Site


class ImpairedStream(OwnStream):
    """An edge's own stream. What is lost is lost for good: the view must notice and ask again."""

    def __init__(
        self,
        site: Site,
        feed: ShardFeed,
        unit: UnitNode,
        region: int,
        impairment: Impairment,
        stream: Random,
    ) -> None:
        """`stream` draws what is lost."""
        super().__init__(site, feed, unit, region)
        self.lost = 0
        """Messages with patches."""
        self._stream: Final = stream
        self._loss = impairment.patch_loss
        self._delay_us = round(1000.0 * impairment.patch_delay_ms)

    def deliver(self, message: UnitToEdge) -> bool:
        """Send it to the edge, late, unless it is lost: as far as the unit knows it was sent."""
        if self._beginning:
            return super().deliver(message)
        if isinstance(message, PatchGroups) and self._stream.random() < self._loss:
            self.lost += 1
            return True
        if self._delay_us:
            self._site.after(self._delay_us, self._send_late, self.sent_attempt, message)
            return True
        return super().deliver(message)

    def _send_late(self, attempt: int, message: UnitToEdge) -> None:
        if not self._carry(attempt, message):
            self.unit.unsubscribe(self)
