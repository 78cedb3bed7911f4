"""The edge's end of a shard's replication: keeps one shard of a keyless view equal to its unit's table.

The view is served all the while. A snapshot is decoded beside the shard as it comes, then swapped in, so that
a resync never makes a served shard empty; a shard that hears nothing goes on being read, as STALE.
"""

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, assert_never

from kvcompass.errors import ProtocolError
from kvcompass.roles.arriving_snapshot import ArrivingSnapshot, LoadedSnapshot
from kvcompass.roles.handshake import PLAN_FIELD
from kvcompass.roles.messages import (
    STREAM_FIELD,
    Acknowledgement,
    Handshake,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    SubscribeRequest,
    Unavailable,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_view import ShardView

STALE_AFTER_US: Final = 3_000_000
"""Several watermark periods."""
EPOCHS_LEFT: Final = 64
"""Lives of the unit that a view remembers to have left. What falls out is sent away, as what is unknown."""


class FollowerState(StrEnum):
    """What a reader may think of the shard."""

    ABSENT = "absent"
    """Not loaded, or forgotten: its levels are unknown, and skipped."""
    CATCHING_UP = "catching_up"
    """Loaded, but not known to be equal to the unit's table now."""
    EXACT = "exact"
    """Equal to the unit's table at the newest sequence heard of."""
    STALE = "stale"
    """Nothing applied for longer than the bound. Read all the same; its decisions are counted as blind."""

    @property
    def is_blind(self) -> bool:
        """It cannot be read, or what is read may be long over: a decision by it is blind."""
        return self in (FollowerState.ABSENT, FollowerState.STALE)


@dataclass(slots=True)
class FollowerCounters:
    """What happened, ever. Each field is a metric."""

    snapshots: int = 0
    groups: int = 0
    """Patch groups applied."""
    old_groups: int = 0
    """Patch groups, watermarks and snapshots at or below the applied sequence: refused."""
    digest_mismatches: int = 0
    resubscriptions: Counter[ResubscribeReason] = field(default_factory=Counter)


class IndexFollower:
    """State machine that feeds one shard of a view. Nobody else writes that shard."""

    def __init__(
        self,
        shard: int,
        view: ShardView,
        handshake: Handshake,
        *,
        stale_after_us: int = STALE_AFTER_US,
        snapshot_bytes: int = 1 << 30,
    ) -> None:
        """`snapshot_bytes`: the largest snapshot accepted."""
        self.shard = shard
        self.counters = FollowerCounters()
        self.stale_after_us = stale_after_us
        self.refusal: Refusal | None = None
        """The refusal of whom it would follow, until somebody accepts."""
        self.last_snapshot: LoadedSnapshot | None = None
        """None before the first."""
        self.was_exact = False
        """The view was EXACT at some time of this stream, or of the one that has just ended."""
        self._view = view
        self._handshake = handshake
        self._arriving = ArrivingSnapshot(shard, view, snapshot_bytes)
        self._unit_epoch = 0
        self._snapshot_wanted = True
        self._verified = False
        self._joined = False
        """The present stream has gone on from the view, or replaced it: its sequences are the view's."""
        self._asks_anew = False
        """Nothing more is taken from the present stream."""
        self.was_loaded = False
        """The shard has been loaded since the start; if it is not, it was forgotten."""
        self._heard_us: int | None = None
        self._epochs_left: deque[int] = deque(maxlen=EPOCHS_LEFT)

    def apply_plan(self, plan_version: int) -> None:
        """What the handshake of the next stream claims; the one that is open stands."""
        self._handshake = replace(self._handshake, plan_version=plan_version)

    # --- what it is now ---------------------------------------------------------------------------

    @property
    def unit_epoch(self) -> int:
        """Epoch of the unit that the view follows; 0 when it follows none."""
        return self._unit_epoch

    @property
    def applied_sequence(self) -> int:
        """Newest patch group in the view, in `unit_epoch`."""
        return self._view.applied_sequence(self.shard) if self._unit_epoch else 0

    @property
    def digest(self) -> int:
        """Of the view; the table's at `applied_sequence` in `unit_epoch`, or the view is wrong."""
        return self._view.digest(self.shard)

    @property
    def loaded(self) -> bool:
        """The shard has had a snapshot: it is read, and goes on where it is."""
        return self._unit_epoch != 0

    def has_left(self, unit_epoch: int) -> bool:
        """That life of the unit came before the one that the view follows. Of others nothing is known."""
        return unit_epoch in self._epochs_left

    def state(self, now_us: int) -> FollowerState:
        """How far the shard can be trusted."""
        if self._heard_us is None:
            return FollowerState.ABSENT
        if now_us - self._heard_us > self.stale_after_us:
            return FollowerState.STALE
        return FollowerState.EXACT if self._verified else FollowerState.CATCHING_UP

    def is_starved(self, now_us: int) -> bool:
        """It is STALE, and no snapshot is under way that would end that."""
        return not self._arriving.is_under_way and self.state(now_us) is FollowerState.STALE

    def age_us(self, now_us: int) -> int | None:
        """Since the unit last confirmed or changed the view; None before it is loaded."""
        return None if self._heard_us is None else now_us - self._heard_us

    def ask_anew(self) -> None:
        """What the present stream still brings is not taken: it ends with its next message."""
        self._asks_anew = True

    def forget(self) -> None:
        """The view may be read no more: the shard is ABSENT until a snapshot comes."""
        self._arriving.drop()
        self._view.forget(self.shard)
        self._unit_epoch = 0
        self._snapshot_wanted = True
        self._verified = self._joined = False
        self._heard_us = None

    # --- the stream -------------------------------------------------------------------------------

    def subscribe_request(self) -> SubscribeRequest:
        """Opens a new stream; what the old one had begun is forgotten."""
        self._arriving.drop()
        self._joined = self._asks_anew = False
        self.was_exact = self._verified
        if self._snapshot_wanted:
            return SubscribeRequest(
                self._handshake, unit_epoch=0, applied_sequence=0, shard=self.shard, loaded=self.loaded
            )
        return self.resume_request()

    def resume_request(self) -> SubscribeRequest:
        """Where the view is: what a stream beside the present one would go on from. Changes nothing."""
        return SubscribeRequest(
            self._handshake, self._unit_epoch, self.applied_sequence, self.shard, loaded=self.loaded
        )

    def stream_ended(self, reason: ResubscribeReason) -> None:
        """The caller gave the stream up, or lost it. The view is served on.

        One that has only MOVED is as exact as it was: the new stream goes on from where it is.
        """
        self._verified = self._verified and reason is ResubscribeReason.MOVED
        self._arriving.drop()
        self.counters.resubscriptions[reason] += 1

    def on_message(self, message: UnitToEdge, now_us: int) -> Resubscribe | None:
        """Takes the stream's next message. On `Resubscribe` the stream is of no more use."""
        if self._asks_anew:
            return Resubscribe(ResubscribeReason.MOVED, "the plan gives places again: all is asked for anew")
        match message:
            case PatchGroups():
                return self._on_patches(message, now_us)
            case Watermark():
                return self._on_watermark(message, now_us)
            case SnapshotChunk():
                return self._on_chunk(message, now_us)
            case Refusal():
                if self._joined and message.field == PLAN_FIELD:
                    return Resubscribe(ResubscribeReason.MOVED, message.message)
                if message.field == STREAM_FIELD:
                    return Resubscribe(ResubscribeReason.LOST, message.message)
                self.refusal = message
                return Resubscribe(ResubscribeReason.REFUSED, f"{message.field}: {message.message}")
            case Unavailable():
                return Resubscribe(ResubscribeReason.UNAVAILABLE, message.reason.value)
            case _:
                assert_never(message)

    def acknowledgement(self) -> Acknowledgement:
        """What the unit may take as applied: nothing before the stream has proved to be of its epoch."""
        return Acknowledgement(self.applied_sequence if self._joined else 0)

    # --- inside -----------------------------------------------------------------------------------

    def _on_patches(self, patches: PatchGroups, now_us: int) -> Resubscribe | None:
        wrong = self._wrong_place(patches.unit_epoch)
        if wrong is not None:
            return wrong
        try:
            result = self._view.apply(self.shard, patches.first_sequence, patches.count, patches.payload)
        except ProtocolError as error:
            self._snapshot_wanted = True
            return Resubscribe(ResubscribeReason.BROKEN, str(error))
        if result.gap:
            return Resubscribe(
                ResubscribeReason.GAP,
                f"group {patches.first_sequence} came after {self.applied_sequence}",
            )
        self.counters.groups += result.applied
        self.counters.old_groups += result.refused_old
        self._heard(now_us)
        return None

    def _on_watermark(self, watermark: Watermark, now_us: int) -> Resubscribe | None:
        wrong = self._wrong_place(watermark.unit_epoch)
        if wrong is not None:
            return wrong
        applied = self.applied_sequence
        if watermark.sequence < applied:
            self.counters.old_groups += 1
            return None
        if watermark.sequence > applied:
            return Resubscribe(
                ResubscribeReason.BEHIND, f"the unit is at {watermark.sequence}, the view at {applied}"
            )
        if self._view.digest(self.shard) != watermark.digest:
            self.counters.digest_mismatches += 1
            self._snapshot_wanted = True
            self._verified = False
            return Resubscribe(ResubscribeReason.DIGEST, f"the view differs from the table at {applied}")
        self._verified = self.was_exact = True
        self._heard(now_us)
        return None

    def _on_chunk(self, chunk: SnapshotChunk, now_us: int) -> Resubscribe | None:
        wrong = self._arriving.accept(chunk, now_us)
        if wrong:
            return Resubscribe(ResubscribeReason.BROKEN, wrong)
        try:
            arrived = self._arriving.add(chunk, now_us)
            return None if arrived is None else self._load(chunk, arrived, now_us)
        except ProtocolError as error:
            self._snapshot_wanted = True
            return Resubscribe(ResubscribeReason.BROKEN, str(error))

    def _load(self, last: SnapshotChunk, arrived: LoadedSnapshot, now_us: int) -> Resubscribe | None:
        same_epoch = last.unit_epoch == self._unit_epoch
        if same_epoch and not self._snapshot_wanted and last.sequence < self.applied_sequence:
            self.counters.old_groups += 1
            self._view.drop_snapshot(self.shard)
            return None
        if self.has_left(last.unit_epoch):
            self._view.drop_snapshot(self.shard)
            return Resubscribe(
                ResubscribeReason.UNAVAILABLE, f"it is at epoch {last.unit_epoch}, which the view has left"
            )
        self._view.end_snapshot(self.shard, last.sequence, last.digest)
        if self.loaded and not same_epoch:
            self._epochs_left.append(self._unit_epoch)
        self._unit_epoch = last.unit_epoch
        self.counters.snapshots += 1
        self.last_snapshot = arrived
        self._snapshot_wanted = False
        self._verified = self.was_exact = True
        self._heard(now_us)
        return None

    def _wrong_place(self, unit_epoch: int) -> Resubscribe | None:
        if unit_epoch != self._unit_epoch:
            return Resubscribe(
                ResubscribeReason.EPOCH, f"the view follows epoch {self._unit_epoch}, not {unit_epoch}"
            )
        if self._arriving.is_under_way or self._snapshot_wanted:
            return Resubscribe(ResubscribeReason.BROKEN, "a snapshot was awaited")
        return None

    def _heard(self, now_us: int) -> None:
        self._heard_us = now_us
        self._joined = self.was_loaded = True
        self.refusal = None
