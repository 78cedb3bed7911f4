"""One direction between two regions: how long bytes travel on it, and whether they travel at all."""

import asyncio
import dataclasses
import random
from collections.abc import Callable

from kvcompass.wan import Link, WanError

_BITS_PER_MBIT = 1e6


def check_carried(link: Link, where: str) -> None:
    """Raises: WanError where `link` does to packets what cannot be done to the bytes of a connection."""
    for name in ("loss", "duplicate", "reorder"):
        if getattr(link, name) > 0.0:
            raise WanError(
                "the relay carries connections, whose bytes all arrive, once and in order; say a longer "
                "one_way_ms or a jitter_ms instead, or use the routers of the compose lab",
                field=f"{where}.{name}",
            )


class Wire:
    """What one direction of a region pair does to bytes; shared by every connection that uses it.

    A partition loses no bytes: like TCP segments, they wait at the sender and cross once the wire is
    healed. `subscribe` a callback to be told of the healing.
    """

    __slots__ = ("_free_at", "_healed", "_link", "_random", "carried_bytes", "partitioned")

    def __init__(self, link: Link, rng: random.Random) -> None:
        self._link = link
        self._random = rng
        self._healed: set[Callable[[], None]] = set()
        self._free_at = 0.0
        self.partitioned = link.partition
        self.carried_bytes = 0

    @property
    def link(self) -> Link:
        """What it does now, the partition included."""
        return dataclasses.replace(self._link, partition=self.partitioned)

    def change(self, link: Link) -> None:
        """Does what `link` says from now on; bytes on their way keep their times."""
        self._link = link
        if link.partition:
            self.cut()
        elif self.partitioned:
            self.heal()

    def travel_s(self) -> float:
        """Seconds that a packet sent now will be on the way."""
        if self._link.jitter_ms == 0.0:
            return self._link.one_way_ms / 1e3
        return max(0.0, self._random.gauss(self._link.one_way_ms, self._link.jitter_ms)) / 1e3

    def carry(self, length: int, now: float, sent_at: float) -> float:
        """When `length` bytes arrive that are handed over `now` and leave at `sent_at`, in loop time."""
        self.carried_bytes += length
        if self._link.rate is None:
            return sent_at + self.travel_s()
        passing_s = length * 8.0 / (self._link.rate * _BITS_PER_MBIT)
        self._free_at = max(now, self._free_at) + passing_s
        return max(sent_at + passing_s, self._free_at) + self.travel_s()

    def cut(self) -> None:
        """Starts a partition."""
        self.partitioned = True

    def heal(self) -> None:
        """Ends a partition; what waited starts to travel now."""
        self.partitioned = False
        for callback in tuple(self._healed):
            callback()

    async def healing(self) -> None:
        """Returns once the wire is up."""
        healed = asyncio.Event()
        self.subscribe(healed.set)
        try:
            while self.partitioned:
                await healed.wait()
                healed.clear()
        finally:
            self.unsubscribe(healed.set)

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Calls `callback` at each healing until `unsubscribe`."""
        self._healed.add(callback)

    def unsubscribe(self, callback: Callable[[], None]) -> None:
        """Forgets `callback`; unknown ones are ignored."""
        self._healed.discard(callback)
