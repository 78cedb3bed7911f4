"""The eviction policy WA: lets go what its category of requests is least likely to use again."""

import math
from collections.abc import Callable

from kvcompass.engine_model.eviction import ORDERS, Eviction, EvictionPolicy, Key, VictimQueue
from kvcompass.engine_model.run import Run

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

    def note_use(self, workload: str, blocks: int) -> None:
        """A request of this category used so many blocks, which from now on wait for their next use."""
        self._uses[workload] = self._uses.get(workload, 0) + blocks

    def note_reuse(self, run: Run, at_us: int) -> None:
        """The wait of a run's blocks has ended. To be called before the run changes its category."""
        workload, blocks = run.workload, len(run.names)
        self._reuses[workload] = self._reuses.get(workload, 0) + blocks
        self._gap_us[workload] = self._gap_us.get(workload, 0) + blocks * (at_us - run.used_us)

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
    p_w · e^(-t/g_w) · (1 - e^(-life/g_w)); the lowest goes first, of equals the one used longest ago.
    Learned while running: p_w, uses that were followed by another, of all uses in w; g_w, the mean gap
    between two uses; life, the mean idle time of what was evicted before. With one category only it is LRU.
    """

    def __init__(self, may_go: Callable[[Run], bool], record: ReuseRecord) -> None:
        self._may_go = may_go
        self._record = record
        self._queues: dict[str, VictimQueue] = {}
        """A category's runs, the one that was used longest ago first."""
        self._offered = 0
        """Since the queues were last compacted."""
        self._evicted = 0
        self._idle_us = 0

    def offer(self, run: Run, resident: int) -> None:
        """See Victims. O(log n)."""
        queue = self._queues.get(run.workload)
        if queue is None:
            queue = self._queues[run.workload] = self._queue_of(run.workload)
        queue.offer(run, resident)
        self._offered += 1
        if self._offered > resident + 64:
            self._offered = 0
            for queue in self._queues.values():
                queue.compact()

    def pop(self, now_us: int, /) -> Run | None:
        """See Victims. O(log n), times the categories."""
        heads = [(head, queue) for queue in self._queues.values() if (head := queue.head()) is not None]
        if not heads:
            return None
        (_, run), queue = min(heads, key=lambda entry: self._worth(entry[0], now_us))
        queue.pop(now_us)
        return run

    def learn(self, eviction: Eviction, now_us: int, /) -> None:
        """See Victims. How long they were idle is a life in the cache."""
        for run, blocks in eviction:
            self._evicted += blocks
            self._idle_us += blocks * (now_us - run.used_us)

    def clear(self) -> None:
        """See Victims. What was learned of lives stays."""
        self._queues.clear()
        self._offered = 0

    def _queue_of(self, workload: str) -> VictimQueue:
        order = ORDERS[EvictionPolicy.LRU]
        return VictimQueue(order, lambda run: run.workload == workload and self._may_go(run))

    def _worth(self, head: tuple[Key, Run], now_us: int) -> tuple[float, Key]:
        key, run = head
        life_us = (self._idle_us + UNSEEN_GAP_US) / (self._evicted + 1)
        return self._record.log_worth(run.workload, now_us - run.used_us, life_us), key
