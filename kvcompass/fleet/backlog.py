"""Own prefill work that has had no first byte, aged by the time a worker has had for it."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FOREVER_US: Final = 1 << 62
"""Later than any moment."""


@dataclass(slots=True)
class _Prefill:
    work_us: int
    begins_us: int


class Backlog:
    """What remains of the prefills that this edge has asked of each worker.

    A worker is taken to work on them one after another as they were sent, a microsecond of work each
    microsecond, on none before it is said to begin. A first byte or an end (`remove`) takes a prefill out,
    and the next one begins then at the latest. One whose time is over counts nothing and lets the next
    begin, for a first byte may be late: that of an answer without streaming comes after the last token.
    """

    def __init__(self, workers: int) -> None:
        self._queues: list[OrderedDict[Hashable, _Prefill]] = [OrderedDict() for _ in range(workers)]
        self._whole_us: NDArray[np.int64] = np.zeros(workers, np.int64)
        """Work of the queue, the first one's whole work included."""
        self._began_us: NDArray[np.int64] = np.full(workers, FOREVER_US, np.int64)
        """When the first one began or will begin."""
        self._ends_us: NDArray[np.int64] = np.full(workers, FOREVER_US, np.int64)
        """When its time is over."""
        self._first_end_us = FOREVER_US
        """No prefill's time is over before this."""

    def grow(self, workers: int) -> None:
        """There are so many workers, no fewer than before. The arrays are others then."""
        more = workers - len(self._queues)
        self._queues += [OrderedDict() for _ in range(more)]
        self._whole_us = np.pad(self._whole_us, (0, more))
        self._began_us = np.pad(self._began_us, (0, more), constant_values=FOREVER_US)
        self._ends_us = np.pad(self._ends_us, (0, more), constant_values=FOREVER_US)

    def add(self, request_id: Hashable, worker: int, work_us: int, begins_us: int) -> None:
        """A prefill is asked for; it begins at `begins_us`, and not before those in front of it are over."""
        queue = self._queues[worker]
        queue[request_id] = _Prefill(work_us, begins_us)
        self._whole_us[worker] += work_us
        if len(queue) == 1:
            self._begin(worker, begins_us)

    def remove(self, request_id: Hashable, worker: int, now_us: int) -> None:
        """A prefill is over at `now_us`, done or not; does nothing when its time was over before."""
        self._age(worker, now_us)
        queue = self._queues[worker]
        if request_id not in queue:
            return
        first = next(iter(queue)) == request_id
        self._whole_us[worker] -= queue.pop(request_id).work_us
        if first:
            self._begin(worker, now_us)

    def age(self, now_us: int) -> None:
        """Take out the prefills whose time is over by then. O(1) while there are none, else O(W) a worker."""
        while now_us >= self._first_end_us:
            worker = int(self._ends_us.argmin())
            self._first_end_us = int(self._ends_us[worker])
            self._age(worker, now_us)

    @property
    def work_us(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """int64[W] each, to be read after `age`: the work of a worker's queue, and when its first one began.

        What remains at `now_us` is the work less the time since then. In place for as long as this lives.
        """
        return self._whole_us, self._began_us

    def _age(self, worker: int, now_us: int) -> None:
        queue = self._queues[worker]
        while (ended_us := int(self._ends_us[worker])) <= now_us:
            self._whole_us[worker] -= queue.popitem(last=False)[1].work_us
            self._begin(worker, ended_us)

    def _begin(self, worker: int, free_us: int) -> None:
        """The worker turns to the first one of its queue, if there is one."""
        first = next(iter(self._queues[worker].values()), None)
        began_us = FOREVER_US if first is None else max(free_us, first.begins_us)
        self._began_us[worker] = began_us
        ends_us = FOREVER_US if first is None else began_us + first.work_us
        self._ends_us[worker] = ends_us
        self._first_end_us = min(self._first_end_us, ends_us)
