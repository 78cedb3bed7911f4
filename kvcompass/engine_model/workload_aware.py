"""The eviction policy WA: lets go what its category of requests is least likely to use again."""

import math
from collections.abc import Callable

from kvcompass.engine_model.block import CacheBlock
from kvcompass.engine_model.eviction import Key, VictimQueue

UNSEEN_GAP_US = 60_000_000
"""One minute: what WA believes of a gap between uses, and of a life in the cache, before it has seen any."""
MAX_WORKLOADS = 64
"""Categories that WA tells apart; requests of further ones count as the nameless one."""


class ReuseRecord:
    """What WA has seen of each category. At most MAX_WORKLOADS of them."""

    def __init__(self) -> None:
        self._uses: dict[str, int] = {}
        self._reuses: dict[str, int] = {}
        self._gap_us: dict[str, int] = {}

    def category(self, workload: str) -> str:
        """The category under which a workload is counted: its own for the first MAX_WORKLOADS."""
        if workload not in self._uses:
            if len(self._uses) >= MAX_WORKLOADS:
                return ""
            self._uses[workload] = 0
        return workload

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


class WorkloadVictims:
    """The victims of one tier under WA.

    The paper (Fig. 6) only names a workload-aware policy and points to a study of production traces (Wang et
    al., KVCache Cache in the Wild, USENIX ATC 2025). Taken from that study: requests fall into categories
    (type and turn), and within one the time to the next use of a block is nearly exponential. The rule made
    of it is ours and has not been compared with either's code: a block of category w, idle for t, is worth
    the probability that it is used within the time that a block lives here,
    p_w · e^(-t/g_w) · (1 - e^(-life/g_w)); the lowest goes first, of equals the one deepest in its prompt.
    Learned while running: p_w, uses that were followed by another, of all uses in w; g_w, the mean gap
    between two uses; life, the mean idle time of what was evicted. With one category only it is LRU.
    """

    def __init__(self, may_go: Callable[[CacheBlock], bool], record: ReuseRecord) -> None:
        self._may_go = may_go
        self._record = record
        self._queues: dict[str, VictimQueue] = {}
        """A category's blocks, the one that was used longest ago first."""
        self._offered = 0
        """Since the queues were last compacted."""
        self._evicted = 0
        self._idle_us = 0

    def offer(self, block: CacheBlock, resident: int) -> None:
        """See Victims. O(log n)."""
        queue = self._queues.get(block.workload)
        if queue is None:
            queue = self._queues[block.workload] = self._queue_of(block.workload)
        queue.offer(block, resident)
        self._offered += 1
        if self._offered > resident + 64:
            self._offered = 0
            for queue in self._queues.values():
                queue.compact()

    def pop(self, now_us: int, /) -> CacheBlock | None:
        """See Victims. O(log n), times the categories."""
        heads = [(head, queue) for queue in self._queues.values() if (head := queue.head()) is not None]
        if not heads:
            return None
        (_, block), queue = min(heads, key=lambda entry: self._worth(entry[0], now_us))
        queue.pop(now_us)
        self._evicted += 1
        self._idle_us += now_us - block.used_us
        return block

    def clear(self) -> None:
        """See Victims. What was learned of lives stays."""
        self._queues.clear()
        self._offered = 0

    def _queue_of(self, workload: str) -> VictimQueue:
        return VictimQueue(_longest_idle, lambda block: block.workload == workload and self._may_go(block))

    def _worth(self, head: tuple[Key, CacheBlock], now_us: int) -> tuple[float, Key]:
        key, block = head
        life_us = (self._idle_us + UNSEEN_GAP_US) / (self._evicted + 1)
        return self._record.log_worth(block.workload, now_us - block.used_us, life_us), key


def _longest_idle(block: CacheBlock) -> Key:
    return block.used_us, -block.depth, block.serial
