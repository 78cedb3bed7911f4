"""Which block goes first: four policies, used by the VRAM and the DRAM tier alike.

A policy only orders. What may go at all, leaves that nobody holds, is the tier's own rule.
"""

import heapq
import math
from collections.abc import Callable
from enum import Enum

from kvcompass.engine_model.block import CacheBlock

UNSEEN_GAP_US = 60_000_000
"""One minute: what WA believes of a gap between uses, and of a life in the cache, before it has seen any."""
MAX_WORKLOADS = 64
"""Categories that WA tells apart; requests of further ones count as the nameless one."""

_Key = tuple[int, ...]


class EvictionPolicy(Enum):
    """How victims are ordered. LRU, LFU and FIFO are SGLang's `--radix-eviction-policy`; WA is not in SGLang.

    WA is the workload-aware policy that the paper compares in its Fig. 6 (Wang et al., KVCache Cache in the
    Wild, USENIX ATC 2025). Within one category of requests (its type and turn) the time to the next use of a
    block is nearly exponential, between categories it differs a lot. So a block of category w, idle for t,
    is worth the probability that it is used within the time that a block lives here:
    p_w · e^(-t/g_w) · (1 - e^(-life/g_w)). The lowest goes first; of equals the one deepest in its prompt.
    Learned while running: p_w, uses that were followed by another, of all uses in w; g_w, the mean gap
    between two uses; life, the mean idle time of what was evicted. With one category only it is LRU.
    """

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    WA = "wa"


_ORDERS: dict[EvictionPolicy, Callable[[CacheBlock], _Key]] = {
    EvictionPolicy.LRU: lambda block: (block.last_use, block.serial),
    EvictionPolicy.LFU: lambda block: (block.hits, block.last_use, block.serial),
    EvictionPolicy.FIFO: lambda block: (block.serial,),
    EvictionPolicy.WA: lambda block: (block.used_us, -block.depth, block.serial),
}
"""Lowest first; for WA within one category."""


class ReuseRecord:
    """What WA has seen of each category. At most MAX_WORKLOADS of them."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._reuses: dict[str, int] = {}
        self._gap_us: dict[str, int] = {}

    def category(self, workload: str) -> str:
        """The category under which a workload is counted."""
        return workload if workload in self._uses or len(self._uses) < MAX_WORKLOADS else ""

    def note_use(self, workload: str) -> None:
        """A request of this category used a block, which from now on waits for its next use."""
        self._uses[workload] = self._uses.get(workload, 0) + 1

    def note_reuse(self, block: CacheBlock, at_us: int) -> None:
        """The wait of a block has ended. To be called before the block changes its category."""
        workload = block.workload
        self._reuses[workload] = self._reuses.get(workload, 0) + 1
        self._gap_us[workload] = self._gap_us.get(workload, 0) + at_us - block.used_us

    def log_worth(self, workload: str, idle_us: int, life_us: float) -> float:
        """Logarithm of the probability of a use within `life_us`; never underflows."""
        reuses = self._reuses.get(workload, 0)
        share = (reuses + 1) / (self._uses.get(workload, 0) + 2)
        gap_us = (self._gap_us.get(workload, 0) + UNSEEN_GAP_US) / (reuses + 1)
        return math.log(share) - idle_us / gap_us + math.log(-math.expm1(-life_us / gap_us))


class VictimQueue:
    """The blocks of one tier that may go, in the order of a policy.

    Entries are not withdrawn: one whose block has been used, taken or left since is skipped when it comes up.
    """

    def __init__(
        self, policy: EvictionPolicy, may_go: Callable[[CacheBlock], bool], record: ReuseRecord | None
    ) -> None:
        assert (record is not None) == (policy is EvictionPolicy.WA)
        self._order = _ORDERS[policy]
        self._may_go = may_go
        self._record = record
        self._heaps: dict[str, list[tuple[_Key, CacheBlock]]] = {}
        self._entries = 0
        self._evicted = 0
        self._idle_us = 0

    def __len__(self) -> int:
        """Entries, stale ones included."""
        return self._entries

    def clear(self) -> None:
        """Forget every entry; what WA knows of lives stays."""
        self._heaps.clear()
        self._entries = 0

    def offer(self, block: CacheBlock, resident: int) -> None:
        """Note that a block may go now, if so. The tier's size bounds the entries: 2 * resident + 64."""
        if not self._may_go(block):
            return
        group = self._group(block)
        heapq.heappush(self._heaps.setdefault(group, []), (self._order(block), block))
        self._entries += 1
        if self._entries > 2 * resident + 64:
            self._compact()

    def pop(self, now_us: int) -> CacheBlock | None:
        """Take the next victim out; None when nothing may go. O(log n), for WA times the categories."""
        heaps = [heap for group, heap in self._heaps.items() if self._has_head(group, heap)]
        if not heaps:
            return None
        first = heaps[0] if len(heaps) == 1 else min(heaps, key=lambda heap: self._worth(heap[0], now_us))
        _, block = heapq.heappop(first)
        self._entries -= 1
        self._evicted += 1
        self._idle_us += now_us - block.used_us
        return block

    def _group(self, block: CacheBlock) -> str:
        return block.workload if self._record else ""

    def _worth(self, entry: tuple[_Key, CacheBlock], now_us: int) -> tuple[float, _Key]:
        """Only WA has several heaps to choose from."""
        assert self._record is not None
        key, block = entry
        life_us = (self._idle_us + UNSEEN_GAP_US) / (self._evicted + 1)
        return self._record.log_worth(block.workload, now_us - block.used_us, life_us), key

    def _has_head(self, group: str, heap: list[tuple[_Key, CacheBlock]]) -> bool:
        """Whether a heap has an entry, after stale ones are dropped from its head."""
        while heap and not self._holds(group, heap[0]):
            heapq.heappop(heap)
            self._entries -= 1
        return bool(heap)

    def _holds(self, group: str, entry: tuple[_Key, CacheBlock]) -> bool:
        key, block = entry
        return self._may_go(block) and self._group(block) == group and self._order(block) == key

    def _compact(self) -> None:
        for group, heap in self._heaps.items():
            kept = {entry[1].serial: entry for entry in heap if self._holds(group, entry)}
            self._heaps[group] = list(kept.values())
            heapq.heapify(self._heaps[group])
        self._entries = sum(len(heap) for heap in self._heaps.values())
