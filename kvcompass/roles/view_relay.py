"""One shard of an edge's view, and what the edge passes on of it to other edges of its region.

The relay stands between the stream and the shard's follower, and serves what the follower applied. What its
subscribers hear is the unit's: epochs, sequences, watermarks with the unit's digests. So they find out by
themselves if this view, or this relay, is wrong; and when the unit falls silent, so does the relay.

Nobody follows in a circle: **an edge serves a shard only while it follows that shard's unit itself.** Whoever
follows an edge serves nobody, and ends what it served before it begins to. So behind every server of a stream
between edges there is a unit and no edge, whatever plans and settings the edges have.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from kvcompass.plan.places import Place
from kvcompass.roles.desk_bounds import DeskBounds, DeskCounters
from kvcompass.roles.index_follower import FollowerState, IndexFollower
from kvcompass.roles.messages import (
    Acknowledgement,
    PatchGroups,
    Refusal,
    SnapshotChunk,
    SubscribeRequest,
    Unavailable,
    UnavailableReason,
    UnitToEdge,
    Watermark,
)
from kvcompass.roles.relay_desk import RelayDesk
from kvcompass.roles.resubscribe import Resubscribe, ResubscribeReason
from kvcompass.roles.shard_writer import FrozenTables
from kvcompass.roles.subscription import Subscription

UNCONFIRMED_US: Final = 10_000_000
"""Ten watermark periods."""


class CopiedView(Protocol):
    """The view that snapshots are made of (`kvcompass.index.IndexView`)."""

    def is_growing(self, shard: int) -> bool:
        """A table of the shard is being doubled."""
        ...

    def has_fields(self, shard: int, table: int, slot: int) -> bool:
        """Some key of the shard has a tier at the place."""
        ...

    def freeze(self, shard: int) -> FrozenTables:
        """Begins to copy a shard; it must not change until that is whole. Not while a table grows."""
        ...

    def digest(self, shard: int) -> int:
        """Of the shard as it is."""
        ...


@dataclass(slots=True)
class RelayCounters(DeskCounters):
    """What happened at a relay, ever. Each field is a metric."""

    unavailable: int = 0
    """Streams refused or ended, since the shard could not be served."""
    payload_bytes: int = 0
    """Of patches and snapshots sent."""


@dataclass(frozen=True, slots=True)
class _ShardOfView:
    """One shard of the view, as a desk wants it."""

    view: CopiedView
    shard: int

    @property
    def is_growing(self) -> bool:
        return self.view.is_growing(self.shard)

    def freeze(self) -> FrozenTables:
        return self.view.freeze(self.shard)

    def digest(self) -> int:
        return self.view.digest(self.shard)


class ViewRelay:
    """State machine of one shard at an edge: follows it, and serves it while it may."""

    def __init__(
        self,
        follower: IndexFollower,
        view: CopiedView,
        *,
        edge_id: str,
        layout: Mapping[str, str],
        plan_version: int,
        neighbours: Collection[str] = (),
        bounds: DeskBounds | None = None,
    ) -> None:
        """`edge_id`, `layout` and `plan_version` are this edge's own.

        `neighbours`: ids of the plan's other edges of its region; they have room among its followers.
        """
        self.follower = follower
        self.counters = RelayCounters()
        self._view = view
        self._plan_version = plan_version
        self._follows_edge = False
        self._confirmed_us: int | None = None
        """When the edge that is followed last passed on word of the unit; None before it said anything."""
        self._closed: set[Subscription] = set()
        """Streams that this edge served when it began to follow an edge: they are over."""
        self._edge_id = edge_id
        self._desk = RelayDesk(
            _ShardOfView(view, follower.shard),
            layout=layout,
            plan_version=plan_version,
            foreseen=neighbours,
            bounds=bounds or DeskBounds(),
            counters=self.counters,
        )

    def apply_plan(self, plan_version: int, neighbours: Collection[str] = ()) -> None:
        """What the next handshakes claim and are compared with.

        The stream that is open stands; those served that claimed an older version than the one before end.
        """
        self._plan_version = plan_version
        self.follower.apply_plan(plan_version)
        self._desk.apply_plan(plan_version, neighbours)

    def places_given_again(self, places: Collection[Place]) -> None:
        """The plan that was taken has workers at places (table, slot) that others may have had before.

        The shard is asked for anew, and nothing more is taken from the present stream. A field that is there
        already may be the one's or the other's: then the shard is ABSENT until a snapshot comes
        (`kvcompass.roles.free_places`). Call it between two requests, as the plan is taken.
        """
        if not places:
            return
        if self.follower.loaded and any(
            self._view.has_fields(self.follower.shard, table, slot) for table, slot in places
        ):
            self.follower.forget()
        self.follower.ask_anew()
        self._desk.forget_up_to(self._desk.sequence)

    # --- the stream that it follows ---------------------------------------------------------------

    def follows(self, *, an_edge: bool) -> None:
        """A new stream is about to be opened, to an edge or to the unit. Call it before that."""
        self._follows_edge = an_edge
        self._confirmed_us = None
        if an_edge:
            self._closed.update(self._desk.subscriptions)

    def on_message(self, message: UnitToEdge, now_us: int) -> Resubscribe | None:
        """Takes the stream's next message, for the follower and for whoever follows this edge.

        Precondition: not `is_copying`.
        """
        assert not self._desk.is_copying
        follower = self.follower
        applied, snapshots = follower.applied_sequence, follower.counters.snapshots
        ended = follower.on_message(message, now_us)
        if follower.counters.snapshots != snapshots:
            self._desk.begin(follower.unit_epoch, follower.applied_sequence)
        elif isinstance(message, PatchGroups) and follower.applied_sequence > applied:
            self._desk.relay(message, follower.applied_sequence - applied)
        elif isinstance(message, Watermark) and ended is None and message.sequence == applied:
            self._desk.heard(message)
            self._confirmed_us = now_us
        if isinstance(message, SnapshotChunk) or self._confirmed_us is None:
            self._confirmed_us = now_us
        return ended or self._unconfirmed(now_us)

    def acknowledgement(self) -> Acknowledgement:
        """What is applied here and at every edge that follows this one."""
        own = self.follower.acknowledgement().sequence
        return Acknowledgement(min(own, self._desk.acknowledged_by_all))

    # --- whoever follows this edge ----------------------------------------------------------------

    @property
    def subscribers(self) -> int:
        """Streams served now."""
        return sum(each not in self._closed for each in self._desk.subscriptions)

    def subscribe(self, request: SubscribeRequest, now_us: int) -> Subscription | Refusal | Unavailable:
        """Opens a stream to another edge: the missed suffix where the log has it, else a snapshot.

        None to a view of a life of the unit that this one has never been in: it may be the next one, and
        this view is still EXACT in the one before until it has heard nothing for its bound. None to one whose
        plan is newer: what this edge follows may hold what that plan has no name for.
        """
        unavailable = self._unavailable(now_us)
        if unavailable is None and self.follower.state(now_us) is not FollowerState.EXACT:
            unavailable = UnavailableReason.NOT_EXACT
        newer_plan = request.handshake.plan_version == self._plan_version + 1
        if unavailable is None and (newer_plan or self._may_be_newer(request.unit_epoch)):
            unavailable = UnavailableReason.NOT_EXACT
        if unavailable is not None:
            self.counters.unavailable += 1
            return Unavailable(unavailable)
        if request.handshake.component_id == self._edge_id:
            self.counters.refusals += 1
            return Refusal("component_id", f"{self._edge_id} would follow itself; mend connect_via")
        opened = self._desk.subscribe(request, now_us)
        if isinstance(opened, Subscription):
            # What the unit would not give a view that may know more, an edge does not pass on to it either.
            opened.waits = request.unit_epoch not in (0, self.follower.unit_epoch)
        return opened

    def unsubscribe(self, subscription: Subscription) -> None:
        """The stream has ended."""
        self._closed.discard(subscription)
        self._desk.unsubscribe(subscription)

    def acknowledged(self, subscription: Subscription, acknowledgement: Acknowledgement) -> None:
        """The subscriber's view is exact up to a sequence."""
        self._desk.acknowledged(subscription, acknowledgement)

    def take(self, subscription: Subscription, now_us: int) -> list[UnitToEdge]:
        """The next messages for a subscriber, a few at a time; after `Unavailable` the stream ends.

        What was applied is passed on while the view is being verified; a snapshot is not.
        """
        if subscription.turn.is_over:
            return self._desk.take(subscription, now_us)
        closed = UnavailableReason.FOLLOWS_EDGE if subscription in self._closed else None
        unavailable = closed or self._unavailable(now_us)
        if unavailable is not None:
            self.counters.unavailable += 1
            return [Unavailable(unavailable)]
        exact = self.follower.state(now_us) is FollowerState.EXACT
        withheld = not exact or (subscription.waits and self._desk.unsettled)
        if withheld and self._desk.needs_snapshot(subscription):
            return []
        messages = self._desk.take(subscription, now_us)
        for message in messages:
            if isinstance(message, PatchGroups | SnapshotChunk):
                self.counters.payload_bytes += len(message.payload)
        return messages

    @property
    def is_copying(self) -> bool:
        """The view is being copied for a snapshot: the shard must not change."""
        return self._desk.is_copying

    def copy_part(self) -> None:
        """Go on with that, 1-2 ms."""
        self._desk.copy_part()

    def _unconfirmed(self, now_us: int) -> Resubscribe | None:
        """An edge that passes on patches and no watermark is left: nothing says that they are the unit's."""
        assert self._confirmed_us is not None
        if not self._follows_edge or now_us - self._confirmed_us <= UNCONFIRMED_US:
            return None
        return Resubscribe(ResubscribeReason.SILENCE, "patches came and no watermark of the unit")

    def _may_be_newer(self, unit_epoch: int) -> bool:
        """A view of that epoch may be of a later life of the unit than this one is; 0: there is no view."""
        return unit_epoch not in (0, self.follower.unit_epoch) and not self.follower.has_left(unit_epoch)

    def _unavailable(self, now_us: int) -> UnavailableReason | None:
        """Why nobody is served at all."""
        if self._follows_edge:
            return UnavailableReason.FOLLOWS_EDGE
        if self.follower.state(now_us).is_blind:
            return UnavailableReason.NOT_EXACT
        return None
