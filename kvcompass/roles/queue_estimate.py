"""How long a new request would wait before its prefill starts, from what an engine tells about its queue."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvcompass.engine_events import BlockHash, BlockStored, EngineNews

_EWMA_WEIGHT: Final = 0.1
_FIRST_GUESS_TOKENS: Final = 1_024.0
"""Uncached tokens of a waiting request as long as none was seen."""


class EngineLoad(NamedTuple):
    """One answer of `/v1/loads`. Fields an engine does not report are None."""

    running: int
    """Requests."""
    waiting: int
    """Requests whose prefill has not started."""
    used_tokens: int
    max_tokens: int
    waiting_uncached_tokens: int | None = None
    """Tokens the waiting requests must still compute."""
    prefill_uncached_tokens: int | None = None
    """Total computed since the engine started."""
    prefill_busy_us: int | None = None
    """Total time spent on them."""


class QueueEstimate:
    """Tq of one worker (paper 3.4).

    An engine that counts the uncached tokens of its queue gives them times the prefill rate. Others only
    count requests: then each is taken to need the recent mean of uncached tokens, and the one being prefilled
    to be half done. The mean is over chains of new blocks of at least a quantum; shorter ones are mostly
    generated text. An engine that counts the tokens and time of its prefills also gives a measured rate.
    Where memory is full the next request waits although no queue shows it: one more of the mean is added.
    """

    def __init__(self, prefill_ms_per_token: float, quantum: int) -> None:
        """Start from the plan's rate (ms) and with no request seen."""
        self._planned_ms_per_token = prefill_ms_per_token
        self._quantum = quantum
        self._mean_uncached = _FIRST_GUESS_TOKENS
        self._totals: tuple[int, int] | None = None
        self.measured_ms_per_token = 0.0
        """0 as long as it is unknown."""

    def apply_plan(self, prefill_ms_per_token: float) -> None:
        """The plan's rate is another, which counts as long as none was measured."""
        self._planned_ms_per_token = prefill_ms_per_token

    @property
    def mean_uncached_tokens(self) -> float:
        """Uncached tokens of a recent request."""
        return self._mean_uncached

    def on_events(self, events: Sequence[EngineNews]) -> None:
        """Learn from the chains of blocks that a batch stores."""
        for tokens in _chains(events):
            if tokens >= self._quantum:
                self._mean_uncached += _EWMA_WEIGHT * (tokens - self._mean_uncached)

    def on_engine_load(self, load: EngineLoad) -> None:
        """Learn the prefill rate from the difference to the answer before."""
        if load.prefill_uncached_tokens is None or load.prefill_busy_us is None:
            return
        before, self._totals = self._totals, (load.prefill_uncached_tokens, load.prefill_busy_us)
        if before is None:
            return
        tokens, busy_us = self._totals[0] - before[0], self._totals[1] - before[1]
        if tokens >= self._quantum and busy_us > 0:
            rate = busy_us / 1_000.0 / tokens
            known = self.measured_ms_per_token
            self.measured_ms_per_token = known + _EWMA_WEIGHT * (rate - known) if known else rate
        elif 0 <= tokens < self._quantum:
            self._totals = before

    def queue_ms(self, load: EngineLoad) -> float:
        """Return the estimate for an engine in this state, in ms."""
        rate = self.measured_ms_per_token or self._planned_ms_per_token
        tokens = self._waiting_tokens(load)
        return (tokens + self._mean_uncached if _is_full(load) else tokens) * rate

    def _waiting_tokens(self, load: EngineLoad) -> float:
        if load.waiting_uncached_tokens is not None:
            return load.waiting_uncached_tokens
        return (load.waiting + 0.5) * self._mean_uncached if load.waiting else 0.0


def _is_full(load: EngineLoad) -> bool:
    """Whether less memory is free than a running request takes in the mean."""
    free = load.max_tokens - load.used_tokens
    return load.running > 0 and load.running * free < load.used_tokens


def _chains(events: Sequence[EngineNews]) -> list[int]:
    """Return the tokens of each run of stores in which every block follows the one before."""
    chains: list[int] = []
    end: BlockHash | None = None
    for event in events:
        if not isinstance(event, BlockStored) or event.medium not in (None, "GPU") or not event.hashes:
            end = None
            continue
        if end is not None and event.parent == end:
            chains[-1] += len(event.tokens)
        else:
            chains.append(len(event.tokens))
        end = event.hashes[-1]
    return chains
