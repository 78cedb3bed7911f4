"""The subscribers of an edge's view: they are passed on what came from the unit, under the unit's numbers."""

from collections.abc import Collection, Mapping

from kvcompass.roles.desk_bounds import DeskBounds, DeskCounters
from kvcompass.roles.messages import (
    PatchGroups,
    Refusal,
    SubscribeRequest,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.subscriber_desk import CopiedTables, SubscriberDesk
from kvcompass.roles.subscription import Subscription


class RelayDesk(SubscriberDesk):
    """A desk that numbers nothing and vouches for nothing: all that it tells is the unit's."""

    def __init__(
        self,
        tables: CopiedTables,
        *,
        layout: Mapping[str, str],
        plan_version: int,
        foreseen: Collection[str],
        bounds: DeskBounds,
        counters: DeskCounters,
    ) -> None:
        """Its log is empty until the view's first snapshot. `foreseen`: the other edges of the region."""
        super().__init__(
            tables,
            epoch=0,
            layout=layout,
            plan_version=plan_version,
            foreseen=foreseen,
            bounds=bounds,
            counters=counters,
        )
        self.unsettled = True
        """As far as is known the unit is still corrected: its tables are not for views of another epoch."""
        self._watermarks = 0
        self._newest: Watermark | None = None
        self._told: dict[Subscription, int] = {}
        """How many watermarks had come when each subscriber was told the newest, or began."""

    @property
    def acknowledged_by_all(self) -> int:
        """What every subscriber's view has applied, and the own view."""
        return min((each.acknowledged for each in self._in_turn()), default=self.sequence)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Streams served now."""
        return tuple(self._in_turn())

    def begin(self, epoch: int, sequence: int) -> None:
        """A snapshot has replaced the view: the log begins anew after it.

        Whoever has been sent all of the same epoch up to there goes on; who is farther behind, or is being
        sent what the view was, gets a snapshot of what it is.
        """
        for subscription in self._subscriptions:
            if subscription.snapshot is not None or epoch != self._epoch:
                subscription.snapshot, subscription.cursor = None, None
            if epoch != self._epoch:
                subscription.acknowledged = 0
                subscription.waits = True
        self.unsettled = self.unsettled or epoch != self._epoch
        self._epoch = epoch
        self._log.begin(sequence)
        self._snapshot = None
        self._newest = None

    def relay(self, patches: PatchGroups, new: int) -> None:
        """The view has applied `new` groups of a message, the last ones. It is passed on as it came.

        It is never joined with others: only the unit knows what applying it costs a view.
        """
        work = max(0, self._bounds.message_groups - patches.count)
        self._log.append(patches.payload, patches.count, work, known=patches.count - new)
        self._forget_old_snapshot()

    def heard(self, watermark: Watermark) -> None:
        """The unit has said what its tables are at the view's sequence, and the view is equal."""
        self._newest = watermark
        self._watermarks += 1
        if self.unsettled and not watermark.unsettled:
            self.unsettled = False
            self._snapshot = None

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal:
        """Opens a stream, as any desk does."""
        opened = super().subscribe(request, now_us)
        if isinstance(opened, Subscription):
            self._told[opened] = self._watermarks
        return opened

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        """As of any desk. The copy of the view is given up with the last who needs it."""
        messages = super().take(subscription, now_us)
        self._release_snapshot()
        return messages

    def unsubscribe(self, subscription: Subscription) -> None:
        """The stream has ended."""
        super().unsubscribe(subscription)
        del self._told[subscription]
        self._release_snapshot()

    def copy_part(self) -> None:
        """Go on with copying the view; whoever needed that may have left meanwhile."""
        super().copy_part()
        self._release_snapshot()

    def _watermark(self, subscription: Subscription, now_us: int) -> Watermark | None:
        """The newest, once, to whoever has been sent all up to it.

        Never one that came before the stream began, nor one made up: what a subscriber hears is as fresh as
        what came from the unit.
        """
        subscription.watermark_due_us = now_us + self._bounds.watermark_period_us
        newest = self._newest
        if newest is None or newest.sequence != subscription.cursor:
            return None
        if self._told[subscription] == self._watermarks:
            return None
        self._told[subscription] = self._watermarks
        return newest

    def _is_impossible(self, applied_sequence: int) -> bool:
        """None is: another view may be ahead of this one by what is on its way here."""
        return False

    def _release_snapshot(self) -> None:
        if self._snapshot is None or self.is_copying:
            return
        if not any(self.needs_snapshot(each) for each in self._in_turn()):
            self._snapshot = None
