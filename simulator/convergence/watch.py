"""The laws that hold all the while, whatever fails: looked at after messages, and now and then."""

from functools import partial
from typing import Any, Final

import numpy as np

from kvcompass.index import IndexView
from kvcompass.plan.model import Plan
from kvcompass.roles.index_follower import FollowerState
from kvcompass.roles.messages import SnapshotChunk, Unavailable, UnitToEdge, Watermark
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.tier import Tier
from simulator.clock import Action, Priority
from simulator.convergence.fleet import Fleet
from simulator.convergence.history import History, Place, Promises
from simulator.convergence.injector import Injector
from simulator.convergence.lease_law import Heard, LeaseLaw
from simulator.convergence.nodes import EdgeProcess
from simulator.convergence.place_law import PlaceLaw
from simulator.convergence.progress import Progress
from simulator.convergence.signs_of_life import SignsOfLife
from simulator.convergence.view_feed import UpstreamEnd, ViewFeed
from simulator.product.unit_node import UnitNode

_EVERY: Final = 8
"""Messages of a feed from one comparison of its view with the promises to the next."""
_PERIOD_US: Final = 250_000
_HOP_US: Final = 1_000_000
"""More than what came from a unit takes from one edge to another. An edge that hears nothing serves until it
is stale, and whoever has begun to follow it just then is stale as long after that."""
_FRESH: Final = (FollowerState.EXACT, FollowerState.CATCHING_UP)


class _Seen:
    """What is known of one shard of one view."""

    def __init__(self) -> None:
        self.messages = 0
        self.heard_us = 0
        self.stream: Heard | None = None
        """The one that something came of last."""
        self.confirmed_after = 0
        """Streams that had ended when a watermark or a part of a snapshot last came."""
        self.progress = Progress()
        self.snapshots = 0
        self.watermark: tuple[Any, ...] = ()
        """Attempt and message of the last one."""
        self.mistaken = 0
        """Digests that differed."""
        self.promises = Promises()
        self.held_at: tuple[int, ...] = ()
        """Epoch, sequence, snapshots and groups that it was compared at."""
        self.anchors: set[int] = set()
        """Keys that never leave and that the view once had."""


class Watch:
    """Collects breaches."""

    def __init__(self, fleet: Fleet, injector: Injector) -> None:
        self.breaches: list[str] = []
        self._fleet = fleet
        self._seen: dict[ViewFeed, _Seen] = {}
        self._unit_heard_us = [0] * fleet.shape.plan.shards
        """When any edge heard of the unit itself."""
        self._mistaken: dict[int, int] = {}
        """Digests that differed, by epoch of the unit."""
        first = fleet.shape.plan.workers[0]
        self._anchored: Place = (first.table, first.slot)
        fleet.fabric.on_arrival = self._arrived
        self._signs = SignsOfLife(fleet, lambda: injector.links_are_impaired)
        injector.on_change = self._signs.note
        self._lease = LeaseLaw(fleet, self._signs, _PERIOD_US)
        self._place = PlaceLaw(fleet)
        injector.witness = self
        for edge in fleet.edges:
            for shard, served in enumerate(edge.served):
                served.on_serving = partial(self._serving_law, edge, shard)
        self._look()

    def unit_takes(self, node: UnitNode, plan: Plan) -> None:
        """A unit is about to take a version of the plan."""
        for unit, what in self._place.at_taking(node, plan):
            self._breach(unit, what)

    def edge_took(self, edge: EdgeProcess) -> None:
        """An edge has just taken one: it may have forgotten shards."""
        for feed in edge.feeds:
            self._sequence_law(edge, feed, self._seen.setdefault(feed, _Seen()))

    def _breach(self, edge: str, what: str) -> None:
        line = f"at {self._fleet.now_us / 1e6:.6f} {edge} {what}"
        self._fleet.trace.note(self._fleet.now_us, edge, f"BREACH: {what}")
        self.breaches.append(line)

    def _look(self) -> None:
        self._digests_law()
        self._signs.note()
        for unit, what in self._lease.at_units():
            self._breach(unit, what)
        for edge in self._fleet.edges:
            for feed in edge.feeds:
                self._look_at(edge, feed)
        self._fleet.clock.at(self._fleet.now_us + _PERIOD_US, Priority.CHECK, self._look)

    def _digests_law(self) -> None:
        """Sequences tell of all that is lost: no digest ever has to find what they did not."""
        for process, node in zip(self._fleet.unit_processes, self._fleet.units, strict=True):
            if node.unit.counters.digest_mismatches > self._mistaken.get(node.unit.epoch, 0):
                self._mistaken[node.unit.epoch] = node.unit.counters.digest_mismatches
                self._breach(process.name, "has not what an agent says at the same sequence")

    def _arrived(self, action: Action, args: tuple[Any, ...]) -> None:
        end = getattr(action, "__self__", None)
        if not isinstance(end, UpstreamEnd):
            return
        feed = end.feed
        seen = self._seen.setdefault(feed, _Seen())
        seen.messages += 1
        if isinstance(args[-1], Watermark):
            if args == seen.watermark and args[-1] is seen.watermark[-1] and not self._fleet.shape.lossy:
                self._breach(
                    f"shard {feed.follower.shard}", f"hears from {end.server.region} again what it heard"
                )
            seen.watermark = args
        seen.heard_us = self._fleet.now_us
        self._note_stream(end, args[0], args[-1], seen)
        if end.server is self._fleet.units[feed.follower.shard]:
            self._unit_heard_us[feed.follower.shard] = self._fleet.now_us
        edge = next((edge for edge in self._fleet.edges if feed in edge.feeds), None)
        if edge is not None:
            snapshots = seen.snapshots
            self._sequence_law(edge, feed, seen)
            self._exact_law(edge, feed, seen)
            if seen.messages % _EVERY == 0 or seen.snapshots > snapshots:
                self._promises_law(edge, feed, seen)

    def _look_at(self, edge: EdgeProcess, feed: ViewFeed) -> None:
        seen = self._seen.setdefault(feed, _Seen())
        follower = feed.follower
        self._sequence_law(edge, feed, seen)
        self._exact_law(edge, feed, seen)
        self._promises_law(edge, feed, seen)
        for what in self._place.at_view(edge, follower.shard, seen.promises):
            self._breach(edge.process.name, what)
        for what in self._lease.at_view(edge, follower.shard, seen.stream):
            self._breach(edge.process.name, what)
        if follower.counters.digest_mismatches > seen.mistaken:
            seen.mistaken = follower.counters.digest_mismatches
            self._breach(edge.process.name, f"differed from shard {follower.shard} at the same sequence")
        fleet = self._fleet
        if follower.state(fleet.now_us) not in _FRESH:
            return
        if fleet.now_us - seen.heard_us > follower.stale_after_us:
            self._breach(edge.process.name, f"has heard nothing of shard {follower.shard} and is not stale")
        unit_silent_us = fleet.now_us - self._unit_heard_us[follower.shard]
        if unit_silent_us > 2 * follower.stale_after_us + _HOP_US:
            self._breach(edge.process.name, f"is not stale, and no edge hears of shard {follower.shard}")

    def _note_stream(self, end: UpstreamEnd, attempt: int, message: object, seen: _Seen) -> None:
        """A message of a stream has been taken in, or waits until the view has been copied."""
        if attempt != end.attempt:
            return
        now_us, stream, follower = self._fleet.now_us, seen.stream, end.feed.follower
        # A stream that ends with this very message may have been left for a better one.
        if isinstance(message, Watermark | SnapshotChunk) and (end.is_open or follower.age_us(now_us) == 0):
            seen.confirmed_after = _ends(end.feed)
        if end.server is not end.feed.server:
            return
        if stream is None or (stream.end, stream.attempt) != (end, attempt):
            seen.stream = Heard(end, attempt, now_us, now_us)
        elif end.is_open:
            stream.last_us = now_us

    def _exact_law(self, edge: EdgeProcess, feed: ViewFeed, seen: _Seen) -> None:
        """After the end of a stream only a watermark or a snapshot of another one makes a view EXACT."""
        follower = feed.follower
        exact = follower.state(self._fleet.now_us) is FollowerState.EXACT
        if exact and seen.confirmed_after != _ends(feed):
            self._breach(edge.process.name, f"is EXACT of shard {follower.shard} by a stream that ended")

    def _serving_law(self, edge: EdgeProcess, shard: int, message: UnitToEdge) -> None:
        """Who serves a shard follows its unit itself."""
        if not isinstance(message, Unavailable) and edge.feeds[shard].server is not self._fleet.units[shard]:
            self._breach(edge.process.name, f"serves shard {shard}, and follows an edge itself")

    def _sequence_law(self, edge: EdgeProcess, feed: ViewFeed, seen: _Seen) -> None:
        """Nothing takes a view back, not even a snapshot."""
        follower = feed.follower
        seen.snapshots = follower.counters.snapshots
        wrong = seen.progress.step_back(follower.unit_epoch, follower.applied_sequence)
        if wrong is not None:
            self._breach(edge.process.name, f"{wrong} in shard {follower.shard}")

    def _promises_law(self, edge: EdgeProcess, feed: ViewFeed, seen: _Seen) -> None:
        """A view has what its unit's table had at the view's sequence."""
        follower, view, fleet = feed.follower, edge.view, self._fleet
        assert view is not None
        if not follower.unit_epoch:
            return
        history = fleet.births.histories[follower.unit_epoch]
        unit = fleet.units[follower.shard].unit
        if unit.epoch == follower.unit_epoch and follower.applied_sequence > unit.sequence:
            self._breach(edge.process.name, f"is ahead of its unit, at {follower.applied_sequence}")
        counters = follower.counters
        now = follower.unit_epoch, follower.applied_sequence, counters.snapshots, counters.groups
        if now == seen.held_at:
            return
        seen.held_at = now
        seen.promises.move(history, follower.applied_sequence)
        for (table, slot), tiers in seen.promises.tiers.items():
            if table >= view.shape.tables:
                continue  # of a plan that the edge does not have yet
            wrong = _wrong_keys(view, table, slot, tiers)
            if wrong:
                self._breach(
                    edge.process.name,
                    f"lacks or mistakes {len(wrong)} keys of table {table}, slot {slot} in shard"
                    f" {follower.shard} at {follower.unit_epoch}/{follower.applied_sequence}",
                )
        self._anchors_law(edge.process.name, view, follower.shard, history, seen)

    def _anchors_law(self, name: str, view: IndexView, shard: int, history: History, seen: _Seen) -> None:
        """What a view once had and was held all the while it still has: a resync empties nothing."""
        promised = seen.promises.tiers.get(self._anchored, {})
        now = {key for key in self._fleet.anchors[shard] if promised.get(key) == Tier.VRAM}
        # Only what was promised counts: a keyless view may know by chance of what it was never told.
        lost = _wrong_keys(view, *self._anchored, dict.fromkeys(seen.anchors - now, int(Tier.VRAM)))
        if lost and self._anchored not in history.cleared | history.left_out:
            self._breach(name, f"lost {len(lost)} keys of shard {shard} that were held all the while")
        seen.anchors = now


def _ends(feed: ViewFeed) -> int:
    """Streams that have ended, but those that were left for another without anything being wrong."""
    ended = feed.follower.counters.resubscriptions
    return ended.total() - ended[ResubscribeReason.MOVED]


def _wrong_keys(view: IndexView, table: int, slot: int, tiers: dict[int, int]) -> list[int]:
    """Keys that a view does not have in these tiers of a worker."""
    values = view.lookup(np.array(list(tiers), np.uint64))[:, table].tolist()
    return [key for key, value in zip(tiers, values, strict=True) if value >> (2 * slot) & 3 != tiers[key]]
