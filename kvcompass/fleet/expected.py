"""Predict on route: what requests under way are about to leave at their workers.

A burst of siblings arrives before the first has finished its prefill; the index knows nothing of their
common prefix yet. Without prediction every sibling looks like a miss and they scatter, each prefilling the
same tokens.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

GRACE_US = 1_000_000
"""How long an expectation outlives its prefill: a worker's event is in every view within a second."""


@dataclass(slots=True)
class _Expectation:
    worker: int
    keys: list[int]


class ExpectedHoldings:
    """Keys expected at workers: from the start of a request until its first byte and `GRACE_US` more.

    A request that ends without a first byte leaves nothing. At most `limit` requests are remembered; what
    exceeds that is not expected, and counted in `dropped`.
    """

    def __init__(self, rungs: NDArray[np.int32], workers: int, limit: int) -> None:
        self.dropped = 0
        self._rungs: list[int] = rungs.tolist()
        self._workers = workers
        self._limit = limit
        self._under_way: dict[Hashable, _Expectation] = {}
        self._fading: deque[tuple[int, _Expectation]] = deque()
        self._holders: dict[int, dict[int, int]] = {}
        """key -> worker -> number of expectations."""

    def apply_plan(self, rungs: NDArray[np.int32], workers: int) -> None:
        """Prompts come with keys of these rungs, and there are so many workers. What is expected stands."""
        self._rungs = rungs.tolist()
        self._workers = workers

    def __len__(self) -> int:
        return len(self._under_way) + len(self._fading)

    def expect(
        self, request_id: Hashable, worker: int, keys: NDArray[np.uint64], beyond_tokens: int, now_us: int
    ) -> None:
        """A request leaves for `worker`, where the index already knows its first `beyond_tokens`."""
        self._expire(now_us)
        known_rungs = bisect_right(self._rungs, beyond_tokens, hi=len(keys))
        if known_rungs == len(keys):
            return
        if len(self) >= self._limit:
            self.dropped += 1
            return
        expectation = _Expectation(worker, keys[known_rungs:].tolist())
        self._under_way[request_id] = expectation
        for key in expectation.keys:
            holders = self._holders.setdefault(key, {})
            holders[worker] = holders.get(worker, 0) + 1

    def prefilled(self, request_id: Hashable, now_us: int) -> None:
        """First byte: the worker holds the prompt now, and its own event will say so."""
        expectation = self._under_way.pop(request_id, None)
        if expectation is not None:
            self._fading.append((now_us + GRACE_US, expectation))

    def ended(self, request_id: Hashable) -> None:
        """The request is over; without a first byte nothing is left."""
        expectation = self._under_way.pop(request_id, None)
        if expectation is not None:
            self._forget(expectation)

    def match(self, keys: NDArray[np.uint64], now_us: int) -> NDArray[np.int32] | None:
        """int32[W]: longest expected match of a prompt with these keys; None when there is none anywhere."""
        self._expire(now_us)
        if not self._holders:
            return None
        expected: NDArray[np.int32] | None = None
        for rung, key in zip(self._rungs, keys.tolist(), strict=False):
            holders = self._holders.get(key)
            if holders is not None:
                if expected is None:
                    expected = np.zeros(self._workers, np.int32)
                for worker in holders:
                    expected[worker] = rung
        return expected

    def _expire(self, now_us: int) -> None:
        while self._fading and self._fading[0][0] <= now_us:
            self._forget(self._fading.popleft()[1])

    def _forget(self, expectation: _Expectation) -> None:
        worker = expectation.worker
        for key in expectation.keys:
            holders = self._holders[key]
            holders[worker] -= 1
            if holders[worker] == 0:
                del holders[worker]
                if not holders:
                    del self._holders[key]
