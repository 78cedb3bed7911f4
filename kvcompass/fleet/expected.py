"""Predict on route: what requests under way are about to leave at their workers.

A burst of siblings arrives before the first has finished its prefill; the index knows nothing of their
common prefix yet. Without prediction every sibling looks like a miss and they scatter, each prefilling the
same tokens. Of a worker whose engine sends no events the index never learns: what was sent there stays
expected for as long as the plan says (`predicted_ttl_ms`).
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.predicted import PredictedKeys

GRACE_US = 1_000_000
"""How long an expectation outlives its prefill: a worker's event is in every view within a second."""


@dataclass(slots=True)
class _Expectation:
    worker: int
    keys: list[int]


class ExpectedHoldings:
    """Keys expected at workers: from the start of a request until its first byte and `GRACE_US` more.

    At workers of predicted holdings keys stay for their time to live after the first byte, a bounded number
    of them; a request that is sent there again renews its own.

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
        self._predicted: dict[int, PredictedKeys] = {}
        self._predicted_us = 0
        self._holders: dict[int, dict[int, int]] = {}
        """key -> worker -> number of expectations."""

    def apply_plan(self, rungs: NDArray[np.int32], workers: int) -> None:
        """Prompts come with keys of these rungs, and there are so many workers. What is expected stands."""
        self._rungs = rungs.tolist()
        self._workers = workers

    def predict(self, workers: Mapping[int, str], kept_us: int) -> None:
        """From here on, the holdings of these workers (index -> id) are predicted, keys for so long each."""
        for worker, kept in list(self._predicted.items()):
            if workers.get(worker) != kept.worker_id:
                self.forget(worker)
                del self._predicted[worker]
        for worker, worker_id in workers.items():
            self._predicted.setdefault(worker, PredictedKeys(worker_id))
        self._predicted_us = kept_us

    def predicted_keys(self, worker: int) -> int:
        """Keys that a worker of predicted holdings is taken to have now."""
        return len(self._predicted.get(worker, ()))

    def predicted_match(self, worker: int, keys: NDArray[np.uint64], now_us: int) -> int:
        """Longest match of a prompt with what was sent to a worker of predicted holdings before, tokens.

        Other than in `match`, requests under way do not count: they may be computing it still.
        """
        kept = self._predicted.get(worker)
        if kept is None:
            return 0
        self._expire(now_us)
        rungs = zip(self._rungs, keys.tolist(), strict=False)
        return max((rung for rung, key in rungs if key in kept), default=0)

    def forget(self, worker: int) -> None:
        """A worker of predicted holdings has lost them."""
        kept = self._predicted.get(worker)
        if kept is not None:
            self._drop(worker, kept.clear())

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
        self._add(worker, expectation.keys)

    def prefilled(self, request_id: Hashable, now_us: int) -> None:
        """First byte: the worker holds the prompt now, and its own event will say so, if it sends any."""
        expectation = self._under_way.pop(request_id, None)
        if expectation is None:
            return
        worker = expectation.worker
        kept = self._predicted.get(worker)
        if kept is None:
            self._fading.append((now_us + GRACE_US, expectation))
            return
        new, gone = kept.keep(expectation.keys, now_us + self._predicted_us)
        self._add(worker, new)
        self._drop(worker, gone)
        self._forget(expectation)

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
        for worker, kept in self._predicted.items():
            self._drop(worker, kept.expire(now_us))

    def _add(self, worker: int, keys: Iterable[int]) -> None:
        for key in keys:
            holders = self._holders.setdefault(key, {})
            holders[worker] = holders.get(worker, 0) + 1

    def _forget(self, expectation: _Expectation) -> None:
        self._drop(expectation.worker, expectation.keys)

    def _drop(self, worker: int, keys: Iterable[int]) -> None:
        for key in keys:
            holders = self._holders[key]
            holders[worker] -= 1
            if holders[worker] == 0:
                del holders[worker]
                if not holders:
                    del self._holders[key]
