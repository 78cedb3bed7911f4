"""Which block goes first: the policies, and the queue of those that may go, used by both tiers alike.

A policy only orders. What may go at all, leaves that nobody holds, is the tier's own rule.
"""

import heapq
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from kvcompass.engine_model.block import CacheBlock

Key = tuple[int, ...]


class EvictionPolicy(Enum):
    """How victims are ordered. LRU, LFU and FIFO are SGLang's `--radix-eviction-policy`; WA is not in SGLang.

    The paper names a workload-aware policy in its Fig. 6 and does not say how it chooses. The rule here is
    ours: see `WorkloadVictims`.
    """

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    WA = "wa"


ORDERS: dict[EvictionPolicy, Callable[[CacheBlock], Key]] = {
    EvictionPolicy.LRU: lambda block: (block.last_use, block.serial),
    EvictionPolicy.LFU: lambda block: (block.hits, block.last_use, block.serial),
    EvictionPolicy.FIFO: lambda block: (block.serial,),
}
"""Lowest first. WA has no fixed order: what a block is worth changes with time."""


class Victims(Protocol):
    """The blocks of one tier that may go."""

    def offer(self, block: CacheBlock, resident: int) -> None:
        """Note that a block may go now, if so. At most 2 * `resident` + 64 are noted, `resident` being the
        tier's blocks."""

    def pop(self, now_us: int, /) -> CacheBlock | None:
        """Take the next victim out; None when nothing may go."""

    def clear(self) -> None:
        """Forget them all."""


class VictimQueue:
    """Victims in a fixed order.

    Entries are not withdrawn: one whose block has been used, taken or left since is skipped when it comes up.
    """

    def __init__(self, order: Callable[[CacheBlock], Key], may_go: Callable[[CacheBlock], bool]) -> None:
        self._order = order
        self._may_go = may_go
        self._heap: list[tuple[Key, CacheBlock]] = []

    def __len__(self) -> int:
        """Entries, stale ones included."""
        return len(self._heap)

    def offer(self, block: CacheBlock, resident: int) -> None:
        """See Victims. O(log n)."""
        if self._may_go(block):
            heapq.heappush(self._heap, (self._order(block), block))
            if len(self._heap) > 2 * resident + 64:
                self.compact()

    def pop(self, _now_us: int, /) -> CacheBlock | None:
        """See Victims. O(log n)."""
        while self._heap:
            entry = heapq.heappop(self._heap)
            if self._holds(entry):
                return entry[1]
        return None

    def head(self) -> tuple[Key, CacheBlock] | None:
        """The next victim and its place in the order; it stays."""
        while self._heap and not self._holds(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0] if self._heap else None

    def clear(self) -> None:
        """See Victims."""
        self._heap.clear()

    def compact(self) -> None:
        """Drop stale entries and repeated ones. O(n)."""
        self._heap = list({entry[1].serial: entry for entry in self._heap if self._holds(entry)}.values())
        heapq.heapify(self._heap)

    def _holds(self, entry: tuple[Key, CacheBlock]) -> bool:
        key, block = entry
        return self._may_go(block) and self._order(block) == key
