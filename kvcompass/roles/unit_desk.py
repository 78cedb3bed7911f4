"""The subscribers of a maintenance unit: they are told what its edits do to its tables."""

from collections.abc import Collection, Mapping

from kvcompass.roles.messages import Watermark
from kvcompass.roles.shard_writer import EncodedPatches, ShardWriter
from kvcompass.roles.subscriber_desk import SubscriberDesk
from kvcompass.roles.subscription import Subscription
from kvcompass.roles.unit_bounds import UnitBounds, UnitCounters


class UnitDesk(SubscriberDesk):
    """A desk that numbers patch groups itself, and says at each period what its tables are."""

    def __init__(
        self,
        tables: ShardWriter,
        *,
        epoch: int,
        layout: Mapping[str, str],
        plan_version: int,
        foreseen: Collection[str],
        bounds: UnitBounds,
        counters: UnitCounters,
    ) -> None:
        """`epoch`, `layout` and `plan_version` are the unit's; `foreseen`: the plan's edges.

        `counters` is counted into.
        """
        super().__init__(
            tables,
            epoch=epoch,
            layout=layout,
            plan_version=plan_version,
            foreseen=foreseen,
            bounds=bounds,
            counters=counters,
        )
        self._writer = tables
        self._unit_counters = counters
        self.unsettled = False
        """What is sent is not for views that may know more."""

    def tables_changed(self, patches: EncodedPatches) -> None:
        """What the last edit did to the tables: from here on it is sent."""
        if not patches.groups:
            return
        if patches.rebuilt:
            self._log.restart()
            self._unit_counters.rebuilds += 1
        else:
            self._log.append(patches.payload, patches.groups, patches.work)
        self._forget_old_snapshot()
        self._unit_counters.growths = self._writer.growths

    def settled(self) -> None:
        """The tables are for all from now on; as they were before, for nobody who has not begun with them."""
        self.unsettled = False
        self._snapshot = None

    def _watermark(self, subscription: Subscription, now_us: int) -> Watermark | None:
        if subscription.cursor != self._log.sequence or now_us < subscription.watermark_due_us:
            return None
        subscription.watermark_due_us = now_us + self._bounds.watermark_period_us
        return Watermark(self._epoch, self._log.sequence, self._tables.digest(), self.unsettled)
