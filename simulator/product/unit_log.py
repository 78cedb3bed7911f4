"""A unit's stream made once for all edges, and each edge's place in it: a view catches up when it is read.

Only where links are steady. There all edges that follow a unit are sent the same messages at the same
instants, and each gets them so much later as it is far away. To apply them when somebody looks gives the view
that applying them as they come would have given.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from kvcompass.roles.index_follower import IndexFollower
from kvcompass.roles.messages import PatchGroups, UnitToEdge
from simulator.errors import SimulationError
from simulator.product import sizes
from simulator.product.unit_node import UnitNode
from simulator.router import Site

_MOST: Final = 4_096
"""Messages after which all edges take what has arrived, so that a log stays short."""


class UnitLog:
    """What a unit has sent, and when. Columns by position; the first messages are forgotten now and then."""

    def __init__(self, site: Site, unit: UnitNode) -> None:
        self.unit: Final = unit
        self.times_us: Final[list[int]] = []
        self.messages: Final[list[UnitToEdge]] = []
        self.payloads: Final[list[bytes]] = []
        """Of patches; empty for other messages."""
        self.bytes_before: Final[list[int]] = []
        """Size of all messages before, those forgotten too."""
        self.breaks: Final[list[int]] = []
        """Positions of messages that do not simply go on with the patches before them."""
        self._site = site
        self._readers: list[LoggedStream] = []
        self._bytes = 0
        self._next_sequence = 0

    def follow(self, reader: "LoggedStream") -> None:
        """One more edge reads. When the run begins, all that was sent is there at once."""
        if not self._readers:
            self.unit.subscribe(reader.follower.subscribe_request(), self)
            self.unit.hurry()
        self._readers.append(reader)
        reader.take(len(self.times_us), self._site.now_us)

    def deliver(self, message: UnitToEdge) -> bool:
        """Send it to all edges."""
        if len(self.times_us) >= _MOST:
            self._shorten()
        if isinstance(message, PatchGroups):
            if message.first_sequence != self._next_sequence:
                self.breaks.append(len(self.times_us))
            self._next_sequence = message.first_sequence + message.count
            self.payloads.append(message.payload)
        else:
            self.breaks.append(len(self.times_us))
            self._next_sequence = 0
            self.payloads.append(b"")
        self.times_us.append(self._site.now_us)
        self.messages.append(message)
        self.bytes_before.append(self._bytes)
        self._bytes += sizes.unit_to_edge(message)
        return True

    def bytes_until(self, position: int) -> int:
        """Size of all messages before a position."""
        return self.bytes_before[position] if position < len(self.bytes_before) else self._bytes

    def _shorten(self) -> None:
        for reader in self._readers:
            reader.catch_up(self._site.now_us)
        done = min(reader.position for reader in self._readers)
        for column in (self.times_us, self.messages, self.payloads, self.bytes_before):
            del column[:done]
        self.breaks[:] = [position - done for position in self.breaks if position >= done]
        for reader in self._readers:
            reader.position -= done


class LoggedStream:
    """An edge's place in a unit's log: an `IndexFeed`."""

    __slots__ = ("_log", "_region", "_site", "_times_us", "_travel_us", "follower", "position")

    def __init__(
        self, site: Site, follower: IndexFollower, log: UnitLog, region: int, travel_us: int
    ) -> None:
        self.follower: Final = follower
        self.position = 0
        """Messages of the log that the view has."""
        self._site = site
        self._log = log
        self._times_us = log.times_us
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
        log, begin = self._log, self.position
        while (position := self.position) < end:
            at = bisect_left(log.breaks, position + 1)
            stop = min(end, log.breaks[at]) if at < len(log.breaks) else end
            message = log.messages[position]
            if stop > position + 1:
                message = self._joined(position, stop)
            self.position = stop
            heard_us = log.times_us[stop - 1] + self._travel_us if arrived_us is None else arrived_us
            ended = self.follower.on_message(message, heard_us)
            if ended is not None:
                raise SimulationError(f"a view lost its way and nothing else: {ended.detail}", field="index")
        size = log.bytes_until(end) - log.bytes_until(begin)
        self._site.count(log.unit.region, self._region, size)

    def _joined(self, begin: int, end: int) -> PatchGroups:
        """Consecutive patches as one message: a view that applies it is as after all of them."""
        first, last = self._log.messages[begin], self._log.messages[end - 1]
        assert isinstance(first, PatchGroups), "only patches are joined"
        assert isinstance(last, PatchGroups), "only patches are joined"
        count = last.first_sequence + last.count - first.first_sequence
        payload = b"".join(self._log.payloads[begin:end])
        return PatchGroups(first.unit_epoch, first.first_sequence, count, payload)
