"""How long a new request would wait before its prefill starts, from what an engine tells about its queue."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kvcompass.engine_events import BlockHash, BlockStored, EngineNews

_EWMA_WEIGHT: Final = 0.1
_FIRST_GUESS_TOKENS: Final = 1_024.0
"""Uncached tokens of a waiting request as long as none was seen."""


class EngineLoad(NamedTuple):
    """What an engine says of its load. Fields that its source does not have are None."""

    running: int
    """Requests."""
    waiting: int
    """Requests whose prefill has not started."""
    used_tokens: int
    """By requests under way; what is only cached counts as free. 0 while some run: it is not told."""
    max_tokens: int
    """Size of the KV pool; 0 when it is not told."""
    waiting_uncached_tokens: int | None = None
    """Tokens the waiting requests must still compute."""
    prefill_uncached_tokens: int | None = None
    """Total computed since the engine started."""
    prefill_busy_us: int | None = None
    """Total time spent on them."""
    finished_requests: int | None = None
    """Total answered since the engine started, and"""
    finished_uncached_tokens: int | None = None
    """the prompt tokens that were computed for them."""

    @property
    def lacks(self) -> tuple[str, ...]:
        """What is not told, and so guessed by `QueueEstimate` or left out."""
        told = {
            "waiting_uncached_tokens": self.waiting_uncached_tokens is not None,
            "prefill_rate": self.prefill_uncached_tokens is not None and self.prefill_busy_us is not None,
            "uncached_tokens_of_a_request": self.finished_uncached_tokens is not None,
            "memory": self.max_tokens > 0,
            "tokens_in_use": self.used_tokens > 0 or self.running == 0,
        }
        return tuple(name for name, is_told in told.items() if not is_told)


class QueueEstimate:
    """Tq of one worker (paper 3.4).

    An engine that counts the uncached tokens of its queue gives them times the prefill rate. Others only
    count requests: then each is taken to need the recent mean of uncached tokens, and the one being prefilled
    to be half done. The mean is over answered requests where the engine counts what it computed for them,
    else over chains of new blocks of at least a quantum; shorter ones are mostly generated text. An engine
    that counts the tokens and time of its prefills also gives a measured rate; for others the plan's stands.
    Where memory is full the next request waits although no queue shows it: one more of the mean is added,
    unless the engine does not tell its memory.
    """

    def __init__(self, prefill_ms_per_token: float, quantum: int) -> None:
        """Start from the plan's rate (ms) and with no request seen."""
        self._planned_ms_per_token = prefill_ms_per_token
        self._quantum = quantum
        self._mean_uncached = _FIRST_GUESS_TOKENS
        self._totals: tuple[int, int] | None = None
        self._finished: tuple[int, int] | None = None
        """Requests and uncached tokens as last counted by the engine; None while it does not count them."""
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
        """Learn from the chains of blocks that a batch stores, unless the engine counts by requests."""
        if self._finished is not None:
            return
        for tokens in _chains(events):
            if tokens >= self._quantum:
                self._mean_uncached += _EWMA_WEIGHT * (tokens - self._mean_uncached)

    def on_engine_load(self, load: EngineLoad) -> None:
        """Learn the prefill rate and the mean request from the differences to the answer before."""
        self._learn_rate(load)
        self._learn_mean(load)

    def queue_ms(self, load: EngineLoad) -> float:
        """Return the estimate for an engine in this state, in ms."""
        rate = self.measured_ms_per_token or self._planned_ms_per_token
        tokens = self._waiting_tokens(load)
        return (tokens + self._mean_uncached if _is_full(load) else tokens) * rate

    def _learn_rate(self, load: EngineLoad) -> None:
        if load.prefill_uncached_tokens is None or load.prefill_busy_us is None:
            self._totals = None
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

    def _learn_mean(self, load: EngineLoad) -> None:
        if load.finished_requests is None or load.finished_uncached_tokens is None:
            self._finished = None
            return
        before, self._finished = self._finished, (load.finished_requests, load.finished_uncached_tokens)
        if before is None:
            return
        requests, tokens = self._finished[0] - before[0], self._finished[1] - before[1]
        if requests > 0 and tokens >= 0:
            kept: float = (1.0 - _EWMA_WEIGHT) ** requests
            self._mean_uncached = kept * self._mean_uncached + (1.0 - kept) * tokens / requests

    def _waiting_tokens(self, load: EngineLoad) -> float:
        if load.waiting_uncached_tokens is not None:
            return load.waiting_uncached_tokens
        return (load.waiting + 0.5) * self._mean_uncached if load.waiting else 0.0


def _is_full(load: EngineLoad) -> bool:
    """Whether less memory is free than a running request takes in the mean."""
    free = load.max_tokens - load.used_tokens
    return load.max_tokens > 0 and load.running > 0 and load.running * free < load.used_tokens


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
