"""Whoever follows a shard, and what each is still to be sent: a unit's subscribers, and an edge's.

Sequences number patch groups. Subscribers are cursors into one bounded log; one that has fallen off it, or
begins, is sent a snapshot. All that need one share it, as long as the log tells what came after it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

from kvcompass.roles.desk_bounds import DeskBounds, DeskCounters
from kvcompass.roles.handshake import PLAN_FIELD, check_handshake, superseded
from kvcompass.roles.messages import (
    Acknowledgement,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    SubscribeRequest,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.patch_log import PatchLog
from kvcompass.roles.shard_writer import FrozenTables
from kvcompass.roles.subscription import Snapshot, Subscription
from kvcompass.roles.turns import Turns


class CopiedTables(Protocol):
    """The tables of one shard that snapshots are made of."""

    @property
    def is_growing(self) -> bool:
        """A table is being doubled: there is no snapshot until that is over."""
        ...

    def freeze(self) -> FrozenTables:
        """Begins to copy the whole shard; nothing may be edited until that is whole.

        Not while a table is growing.
        """
        ...

    def digest(self) -> int:
        """Of the tables now."""
        ...


class SubscriberDesk(ABC):
    """State machine of all Subscribe streams of a shard. Reads the tables, never edits them."""

    def __init__(
        self,
        tables: CopiedTables,
        *,
        epoch: int,
        layout: Mapping[str, str],
        plan_version: int,
        foreseen: Collection[str],
        bounds: DeskBounds,
        counters: DeskCounters,
    ) -> None:
        """`epoch`: of the unit that writes the tables. `foreseen`: ids of the plan's edges that may follow.

        `counters` is counted into.
        """
        self._tables = tables
        self._epoch = epoch
        self._layout = layout
        self._plan_version = plan_version
        self._foreseen = frozenset(foreseen)
        self._bounds = bounds
        self._counters = counters
        self._log = PatchLog(groups_max=bounds.log_groups, bytes_max=bounds.log_bytes)
        self._subscriptions: list[Subscription] = []
        self._turns = Turns()
        self._snapshot: Snapshot | None = None

    def apply_plan(self, plan_version: int, foreseen: Collection[str]) -> None:
        """Nobody who follows claims a version more than one away from this one.

        Streams that began with an older one end: the new ones go on where those were.
        """
        self._plan_version = plan_version
        self._foreseen = frozenset(foreseen)
        for subscription in self._subscriptions:
            subscription.fell_behind |= subscription.plan_version < plan_version - 1

    @property
    def sequence(self) -> int:
        """Number of the newest patch group."""
        return self._log.sequence

    def lags(self) -> dict[str, int]:
        """Patch groups that each subscriber has not acknowledged."""
        return {
            subscription.subscriber: self.sequence - min(subscription.acknowledged, self.sequence)
            for subscription in self._in_turn()
        }

    def forget_up_to(self, sequence: int) -> None:
        """Tells nobody what the tables were before this sequence: who is not there yet gets a snapshot."""
        self._log.forget_up_to(min(sequence, self._log.sequence))
        if self._snapshot is not None and self._snapshot.sequence < sequence:
            self._snapshot = None
        for subscription in self._subscriptions:
            if subscription.snapshot is not None and subscription.snapshot.sequence < sequence:
                subscription.snapshot, subscription.cursor = None, None

    def acknowledged_by(self) -> dict[str, int]:
        """By subscriber, the newest sequence that it has acknowledged."""
        return {each.subscriber: each.acknowledged for each in self._in_turn()}

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal:
        """Opens a Subscribe stream: the missed suffix where the log has it, else a snapshot; then patches.

        It takes the place of the subscriber's last, which ends.
        """
        handshake = request.handshake
        refusal = check_handshake(handshake, self._layout, self._plan_version)
        if refusal is None and not self._has_room_for(handshake.component_id):
            refusal = Refusal(
                "subscriptions",
                f"at most {self._bounds.subscriptions} are served here, the plan's edges among them",
            )
        if refusal is not None:
            self._counters.refusals += 1
            return refusal
        replay = (
            request.unit_epoch == self._epoch
            and request.applied_sequence >= self._log.floor
            and not self._is_impossible(request.applied_sequence)
        )
        turn = self._turns.take(handshake.component_id, handshake.epoch)
        self._counters.superseded_subscribers += turn.instead_of is not None
        subscription = Subscription(
            turn,
            cursor=request.applied_sequence if replay else None,
            watermark_due_us=now_us,
            plan_version=request.handshake.plan_version,
            acknowledged=request.applied_sequence if replay else 0,
        )
        self._subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """The stream has ended."""
        self._subscriptions.remove(subscription)
        self._turns.give_up(subscription.turn)

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        """The subscriber's view is exact up to a sequence; unless it was not sent that in this epoch."""
        if subscription.cursor is None or acknowledgement.sequence > subscription.cursor:
            return
        subscription.acknowledged = max(subscription.acknowledged, acknowledgement.sequence)

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        """The next messages for a subscriber, a few at a time; empty when it has all there is.

        One that needs a snapshot, where none is recent, waits while a table is growing or is copied for it:
        both are over soon.
        """
        if subscription.must_end:
            return self._why_over(subscription)
        begins = subscription.snapshot is None and self.needs_snapshot(subscription)
        if begins and not self._begin_snapshot(subscription):
            return []
        if subscription.snapshot is not None:
            return [self._next_chunk(subscription, subscription.snapshot)]
        assert subscription.cursor is not None
        messages: list[UnitToEdge] = []
        run = self._log.after(subscription.cursor, self._bounds.message_groups)
        if run is not None:
            messages.append(PatchGroups(self._epoch, run.first, run.groups, run.payload))
            subscription.cursor = run.last
        watermark = self._watermark(subscription, now_us)
        if watermark is not None:
            messages.append(watermark)
        subscription.served = subscription.served or bool(messages)
        return messages

    def needs_snapshot(self, subscription: Subscription) -> bool:
        """What it was sent last is not in the log, or a snapshot is on its way to it."""
        cursor = subscription.cursor
        return subscription.snapshot is not None or cursor is None or cursor < self._log.floor

    @property
    def is_copying(self) -> bool:
        """The tables are being copied for a snapshot: they must not be edited."""
        return self._snapshot is not None and not self._snapshot.tables.is_whole

    def copy_part(self) -> None:
        """Go on with that."""
        if self._snapshot is not None and not self._snapshot.tables.is_whole:
            self._snapshot.tables.step()

    def _in_turn(self) -> Iterator[Subscription]:
        """The newest stream of each subscriber."""
        return (each for each in self._subscriptions if not each.turn.is_over)

    def _has_room_for(self, subscriber: str) -> bool:
        """Whoever is foreseen and has not come yet keeps the others out."""
        others = self._turns.senders() - {subscriber}
        kept = () if subscriber in self._foreseen else self._foreseen - others
        return len(others) + len(kept) < self._bounds.subscriptions

    def _why_over(self, subscription: Subscription) -> list[UnitToEdge]:
        """Said once."""
        if subscription.knows_why:
            return []
        subscription.knows_why = True
        if subscription.turn.is_over:
            return [superseded(subscription.subscriber)]
        return [self._fell_behind(subscription)]

    def _fell_behind(self, subscription: Subscription) -> Refusal:
        return Refusal(
            PLAN_FIELD,
            f"{subscription.subscriber} began this stream with plan version {subscription.plan_version}, and"
            f" {self._plan_version} runs here; subscribe anew",
        )

    @abstractmethod
    def _watermark(self, subscription: Subscription, now_us: int) -> Watermark | None:
        """What a subscriber is to compare its view with, if that is due."""

    def _is_impossible(self, applied_sequence: int) -> bool:
        """No view of this epoch can be there."""
        return applied_sequence > self._log.sequence

    def _forget_old_snapshot(self) -> None:
        """The log has grown: one that it no longer reaches back to serves nobody who begins."""
        if self._snapshot is not None and not self._is_recent(self._snapshot):
            self._snapshot = None

    def _is_recent(self, snapshot: Snapshot) -> bool:
        """The log tells what came after it, and has room for as much again while it is being sent."""
        since = self._log.sequence - snapshot.sequence
        return snapshot.sequence >= self._log.floor and since <= self._bounds.log_groups // 2

    def _begin_snapshot(self, subscription: Subscription) -> bool:
        """Give a subscriber the recent snapshot, if there is one; else see that there will be."""
        if self._snapshot is None:
            if self._tables.is_growing:
                return False
            frozen = self._tables.freeze()
            self._snapshot = Snapshot(self._log.sequence, frozen.digest, frozen)
            self.copy_part()
        if self.is_copying:
            return False
        if subscription.served and (subscription.cursor or 0) >= self._log.restarted_at:
            self._counters.overflows += 1
        self._counters.snapshots += 1
        subscription.snapshot = self._snapshot
        subscription.next_chunk = 0
        return True

    def _next_chunk(self, subscription: Subscription, snapshot: Snapshot) -> SnapshotChunk:
        size = self._bounds.chunk_bytes
        chunks = max(1, -(-snapshot.tables.size // size))
        chunk = subscription.next_chunk
        payload = snapshot.tables.read(chunk * size, min((chunk + 1) * size, snapshot.tables.size))
        subscription.next_chunk += 1
        subscription.served = True
        if subscription.next_chunk == chunks:
            subscription.cursor = snapshot.sequence
            subscription.snapshot = None
        return SnapshotChunk(self._epoch, snapshot.sequence, snapshot.digest, chunk, chunks, payload)
