"""How an edge's view follows the units. Two ways that give the same view whenever a request asks it."""

from bisect import bisect_right
from typing import Final, Protocol

from kvcompass.roles.index_follower import IndexFollower, Resubscribe, ResubscribeReason
from kvcompass.roles.messages import PatchGroups, SubscribeRequest, UnitToEdge
from simulator.errors import SimulationError
from simulator.product import sizes
from simulator.product.backoff import Backoff
from simulator.product.unit_node import UnitNode
from simulator.router import Site

_LOG_MOST: Final = 4_096
"""Messages after which all edges take what has arrived, so that a log stays short."""


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
        return self._site.send_reliably(
            self._region, self._heard, sizes.unit_to_edge(message), (self._sent_attempt, message)
        )


class UnitLog:
    """What a unit has sent to all edges, and when: its stream made once. Only where links are steady.

    All edges that follow a unit without falling behind are sent the same messages at the same instants.
    """

    def __init__(self, site: Site, unit: UnitNode) -> None:
        self.times_us: Final[list[int]] = []
        self.messages: Final[list[UnitToEdge]] = []
        self.unit: Final = unit
        self._site = site
        self._readers: list[LoggedStream] = []

    def follow(self, reader: "LoggedStream") -> None:
        """One more edge reads. When the run begins, all that was sent is there at once."""
        if not self._readers:
            self.unit.subscribe(reader.follower.subscribe_request(), self)
            self.unit.hurry()
        self._readers.append(reader)
        reader.take(len(self.messages), self._site.now_us)

    def deliver(self, message: UnitToEdge) -> bool:
        """Send it to all edges."""
        if len(self.messages) >= _LOG_MOST:
            for reader in self._readers:
                reader.catch_up(self._site.now_us)
            done = min(reader.position for reader in self._readers)
            del self.times_us[:done], self.messages[:done]
            for reader in self._readers:
                reader.position -= done
        self.times_us.append(self._site.now_us)
        self.messages.append(message)
        return True


class LoggedStream:
    """An edge's place in a unit's log. Its view is brought up to date when it is asked."""

    __slots__ = ("_log", "_messages", "_region", "_site", "_times_us", "_travel_us", "follower", "position")

    def __init__(
        self, site: Site, follower: IndexFollower, log: UnitLog, region: int, travel_us: int
    ) -> None:
        self.follower: Final = follower
        self.position = 0
        """Messages of the log that the view has."""
        self._site = site
        self._log = log
        self._times_us = log.times_us
        self._messages = log.messages
        self._region = region
        self._travel_us = travel_us

    @property
    def unit(self) -> UnitNode:
        """What it follows."""
        return self._log.unit

    def open(self) -> None:
        """Join those who read the log."""
        self._log.follow(self)

    def start(self) -> None:
        """Nothing is done by itself."""

    def catch_up(self, now_us: int) -> None:
        """Apply what has arrived since the last time."""
        position, times_us = self.position, self._times_us
        sent_by_us = now_us - self._travel_us
        if position < len(times_us) and times_us[position] <= sent_by_us:
            self.take(bisect_right(times_us, sent_by_us, lo=position), None)

    def take(self, end: int, arrived_us: int | None) -> None:
        """Apply all messages before a position, consecutive patches as one. None: they came as they come."""
        position, size = self.position, 0
        while self.position < end:
            run = self._run(end)
            message = _joined(run) if len(run) > 1 else self._messages[self.position]
            self.position += max(1, len(run))
            heard_us = (
                self._times_us[self.position - 1] + self._travel_us if arrived_us is None else arrived_us
            )
            ended = self.follower.on_message(message, heard_us)
            if ended is not None:
                raise SimulationError(f"a view lost its way and nothing else: {ended.detail}", field="index")
            size += sizes.unit_to_edge(message)
        self._site.count(self._log.unit.region, self._region, size, end - position)

    def _run(self, end: int) -> list[PatchGroups]:
        """Consecutive patches from here on; empty when the next message is something else."""
        run: list[PatchGroups] = []
        for message in self._messages[self.position : end]:
            follows = not run or (
                isinstance(message, PatchGroups)
                and message.first_sequence == run[-1].first_sequence + run[-1].count
            )
            if not isinstance(message, PatchGroups) or not follows:
                break
            run.append(message)
        return run


def _joined(run: list[PatchGroups]) -> PatchGroups:
    """Consecutive patches as one message: a view that applies it is as after all of them."""
    payload = b"".join([message.payload for message in run])
    return PatchGroups(run[0].unit_epoch, run[0].first_sequence, sum(each.count for each in run), payload)
