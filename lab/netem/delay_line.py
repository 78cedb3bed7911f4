"""Packets on their way in one direction, by the laws of `kvcompass.wan.Link`. No I/O, no clock."""

import random
from collections import deque
from enum import Enum, auto
from typing import Final

from kvcompass.wan.link import Link

MAX_HELD: Final = 50_000
"""Packets on the way; more are dropped. As netem's `limit`."""
RATE_QUEUE_MS: Final = 200.0
"""What may wait for a slow link before packets are dropped: a router's buffer."""

_NS_PER_MS: Final = 1_000_000


class Fate(Enum):
    """What becomes of a packet."""

    HELD = auto()
    PASSES_AT_ONCE = auto()
    DROPPED = auto()


class DelayLine:
    """Holds the numbers of packets, not the packets. Numbers rise in the order of `admit`."""

    __slots__ = ("_held", "_last_due_ns", "_random", "link", "packets", "shaped_drops")

    def __init__(self, link: Link, rng: random.Random) -> None:
        self.link = link
        """May be replaced; packets on the way keep their times."""
        self.packets = 0
        self.shaped_drops = 0
        self._random = rng
        self._held: deque[tuple[int, int]] = deque()
        self._last_due_ns = 0

    def __len__(self) -> int:
        return len(self._held)

    def admit(self, now_ns: int, number: int, length: int) -> Fate:
        """Takes a packet of `length` bytes that was sent at `now_ns`."""
        link = self.link
        self.packets += 1
        if link.loss and self._random.random() < link.loss:
            return self._drop()
        if link.reorder and self._random.random() < link.reorder:
            return Fate.PASSES_AT_ONCE
        travel_ms = link.one_way_ms
        if link.jitter_ms:
            travel_ms = max(0.0, self._random.gauss(travel_ms, link.jitter_ms))
        arrives_ns = now_ns + round(travel_ms * _NS_PER_MS)
        waits_ns = max(0, self._last_due_ns - arrives_ns)
        due_ns = arrives_ns + waits_ns
        if link.rate is not None:
            if waits_ns > RATE_QUEUE_MS * _NS_PER_MS:
                return self._drop()
            due_ns += round(length * 8_000 / link.rate)
        if len(self._held) >= MAX_HELD:
            return self._drop()
        self._last_due_ns = due_ns
        self._held.append((due_ns, number))
        return Fate.HELD

    def next_due_ns(self) -> int | None:
        """When the next packet arrives; None: nothing is on the way."""
        return self._held[0][0] if self._held else None

    def release(self, now_ns: int) -> int | None:
        """Forgets the packets that have arrived; returns the number of the last one, if any."""
        held = self._held
        last: int | None = None
        while held and held[0][0] <= now_ns:
            last = held.popleft()[1]
        return last

    def _drop(self) -> Fate:
        self.shaped_drops += 1
        return Fate.DROPPED
