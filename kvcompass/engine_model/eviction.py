"""Which run goes first: the policies, and the queue of those that may go, used by both tiers alike.

A policy only orders. What may go at all, the ends of paths that nobody holds, is the tier's own rule. Blocks
leave one by one, the last of a run first; as all blocks of a run rank alike under every policy, and no run of
another path ranks equal, the rest of a run follows before anything else does.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Protocol

from kvcompass.engine_model.run import Run

Key = tuple[int, ...]
Eviction = Sequence[tuple[Run, int]]
"""What went at one instant for one request: runs and how many blocks of each."""


class EvictionPolicy(Enum):
    """How victims are ordered. LRU, LFU and FIFO are SGLang's `--radix-eviction-policy`; WA is not in SGLang.

    The paper names a workload-aware policy in its Fig. 6 and does not say how it chooses. The rule here is
    ours: see `WorkloadVictims`.
    """

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    WA = "wa"


def _least_recent(run: Run) -> Key:
    return run.last_use, run.serial


def _least_frequent(run: Run) -> Key:
    return run.hits, run.last_use, run.serial


def _oldest(run: Run) -> Key:
    return (run.serial,)


ORDERS: dict[EvictionPolicy, Callable[[Run], Key]] = {
    EvictionPolicy.LRU: _least_recent,
    EvictionPolicy.LFU: _least_frequent,
    EvictionPolicy.FIFO: _oldest,
}
"""Lowest first, no two alike. WA has no fixed order: what a block is worth changes with time."""


_Entry = tuple[Key, int, Run]
"""A run, its place in the order, and a number that tells it from older entries of that place."""


class Victims(Protocol):
    """The runs of one tier that may go."""

    def offer(self, run: Run, resident: int) -> None:
        """Note that a run may go now, if so. At most 2 * `resident` + 64 are noted, `resident` being the
        tier's blocks."""

    def pop(self, now_us: int, /) -> Run | None:
        """Take the next victim out; None when nothing may go."""

    def learn(self, eviction: Eviction, now_us: int, /) -> None:
        """Take note of what went."""

    def clear(self) -> None:
        """Forget them all."""


class VictimQueue:
    """Victims in a fixed order.

    Entries are not withdrawn: one whose run has been used, taken or left since is skipped when it comes up.
    """

    def __init__(self, order: Callable[[Run], Key], may_go: Callable[[Run], bool]) -> None:
        self._order = order
        self._may_go = may_go
        self._heap: list[_Entry] = []
        self._offers = 0

    def __len__(self) -> int:
        """Entries, stale ones included."""
        return len(self._heap)

    def offer(self, run: Run, resident: int) -> None:
        """See Victims. O(log n)."""
        if self._may_go(run):
            self._offers += 1
            heappush(self._heap, (self._order(run), self._offers, run))
            if len(self._heap) > 2 * resident + 64:
                self.compact()

    def pop(self, _now_us: int, /) -> Run | None:
        """See Victims. O(log n)."""
        while self._heap:
            entry = heappop(self._heap)
            if self._holds(entry):
                return entry[2]
        return None

    def learn(self, _eviction: Eviction, _now_us: int, /) -> None:
        """See Victims. A fixed order learns nothing."""

    def head(self) -> tuple[Key, Run] | None:
        """The next victim and its place in the order; it stays."""
        while self._heap and not self._holds(self._heap[0]):
            heappop(self._heap)
        return (self._heap[0][0], self._heap[0][2]) if self._heap else None

    def clear(self) -> None:
        """See Victims."""
        self._heap.clear()

    def compact(self) -> None:
        """Drop stale entries and repeated ones. O(n)."""
        self._heap = list({entry[2].serial: entry for entry in self._heap if self._holds(entry)}.values())
        heapify(self._heap)

    def _holds(self, entry: _Entry) -> bool:
        key, _, run = entry
        return self._may_go(run) and self._order(run) == key
