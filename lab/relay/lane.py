"""What one connection has on its way in one direction: bytes, then perhaps an end, in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from lab.relay.wire import Wire

LANE_BYTES = 8 << 20
"""Bytes a lane holds before its sender is paused: 300 ms at 200 Mbit/s."""


class End(Enum):
    """How a direction ends."""

    HALF_CLOSE = auto()
    ABORT = auto()


class Sink(Protocol):
    """Where a lane delivers: the far socket."""

    @property
    def accepts(self) -> bool:
        """Whether `deliver` may be called now."""

    def deliver(self, item: bytes | End) -> None:
        """Takes bytes or the end of the direction."""


class Lane:
    """Keeps order, delays by the wire, and bounds what is on the way by pausing the sender."""

    def __init__(
        self,
        wire: Wire,
        *,
        opens_at: float,
        pause: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire = wire
        self._opens_at = opens_at
        self._pause = pause
        self._resume = resume
        self._queue: deque[tuple[float, bytes | End]] = deque()
        self._bytes = 0
        self._last_due = 0.0
        self._paused = False
        self._closed = False
        self._sink: Sink | None = None
        self._timer: asyncio.TimerHandle | None = None
        wire.subscribe(self._on_heal)

    def connect(self, sink: Sink) -> None:
        """The far socket is there: what is due may be delivered."""
        self._sink = sink
        self.flush()

    def push(self, item: bytes | End) -> None:
        """Sends bytes or an end; nothing sent before `opens_at` leaves earlier than that."""
        if self._closed:
            return
        now = self._loop.time()
        length = len(item) if isinstance(item, bytes) else 0
        arrives = self._wire.carry(length, now, max(now, self._opens_at))
        self._last_due = max(self._last_due, arrives)
        self._queue.append((self._last_due, item))
        self._bytes += length
        if self._bytes > LANE_BYTES and not self._paused:
            self._paused = True
            self._pause()
        self._arm()

    def flush(self) -> None:
        """Delivers what is due, as long as the wire is up and the sink accepts."""
        now = self._loop.time()
        queue = self._queue
        while queue and queue[0][0] <= now and self._may_deliver():
            _, item = queue.popleft()
            if isinstance(item, bytes):
                self._bytes -= len(item)
            assert self._sink is not None
            self._sink.deliver(item)
        if self._paused and self._bytes < LANE_BYTES // 2:
            self._paused = False
            self._resume()
        self._arm()

    def close(self) -> None:
        """Drops what is on the way and what is still sent, and forgets the wire."""
        self._closed = True
        self._wire.unsubscribe(self._on_heal)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.clear()
        self._bytes = 0
        if self._paused:
            self._paused = False
            self._resume()

    def _may_deliver(self) -> bool:
        return not self._wire.partitioned and self._sink is not None and self._sink.accepts

    def _arm(self) -> None:
        # Without a sink, in a partition or before a full socket, an event calls flush; a timer would spin.
        if self._timer is None and self._queue and self._may_deliver():
            self._timer = self._loop.call_at(self._queue[0][0], self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.flush()

    def _on_heal(self) -> None:
        """What should have arrived during the partition leaves the sender now."""
        arrives = self._loop.time() + self._wire.travel_s()
        self._queue = deque((max(due, arrives), item) for due, item in self._queue)
        self._last_due = max(self._last_due, arrives)
        self._arm()
