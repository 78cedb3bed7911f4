"""One direction between two regions: how long bytes travel on it, and whether they travel at all."""

import asyncio
import random
from collections.abc import Callable


class Wire:
    """Delay and partition of one direction of a region pair; shared by every connection that uses it.

    A partition loses no bytes: like TCP segments, they wait at the sender and cross once the wire is
    healed. `subscribe` a callback to be told of the healing.
    """

    __slots__ = ("_healed", "_jitter_s", "_one_way_s", "_random", "carried_bytes", "partitioned")

    def __init__(self, one_way_ms: float, jitter_ms: float, rng: random.Random) -> None:
        assert one_way_ms >= 0.0 and jitter_ms >= 0.0
        self._one_way_s = one_way_ms / 1e3
        self._jitter_s = jitter_ms / 1e3
        self._random = rng
        self._healed: set[Callable[[], None]] = set()
        self.partitioned = False
        self.carried_bytes = 0

    def travel_s(self) -> float:
        """Seconds that bytes sent now will be on the way."""
        if self._jitter_s == 0.0:
            return self._one_way_s
        return max(0.0, self._random.gauss(self._one_way_s, self._jitter_s))

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
