"""One engine as a state machine over model time: a prefill queue, a decoding batch, a block cache.

No clock and no I/O. Every method is given `now_us`; what happened until then is settled first, each thing at
its own instant, so results do not depend on how often the engine is asked. The order within one instant:
a prefill ends before a decode step begins, so its sequence joins that step.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model.block_cache import BlockCache, Holding, TierEvents
from kvcompass.engine_model.eviction import EvictionPolicy
from kvcompass.engine_model.timing import EngineTiming
from kvcompass.engine_model.token_chain import TokenChain

DECODE_STEPS_PER_BATCH = 40
"""SGLang publishes cache events after each prefill, every 40 decode steps and when idle."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Size and speed of one engine."""

    page_size: int = 16
    """Tokens a block."""
    cache_tokens: int = 244_140
    """KV capacity: 32 GB at 131,072 bytes a token."""
    max_running: int = 64
    """Sequences that decode at once."""
    max_queued: int = 256
    """Requests that wait for their prefill; more are refused."""
    timing: EngineTiming = field(default_factory=EngineTiming)
    host_cache_tokens: int = 0
    """Tokens that the DRAM tier holds copies of; 0: no such tier."""
    eviction: EvictionPolicy = EvictionPolicy.LRU
    tier_events: TierEvents = TierEvents.ALL
    """How much the engine tells of its tiers."""


@dataclass(frozen=True, slots=True, eq=False)
class EngineRequest:
    """Tokens in, and the tokens that will come out (a model of an engine invents nothing)."""

    id: str
    prompt: NDArray[np.int32]
    """int32[n], n > 0."""
    answer: NDArray[np.int32]
    """int32[m]; empty means prefill only."""
    workload: str = ""
    """Category of the request, such as its type and turn; only the policy WA looks at it."""
    scope: str = ""
    """Salt or adapter that separates its cache from that of equal tokens; empty for none."""
    transferred: bool = False
    """The KV comes from a prefill engine (a decode worker's request): no time to compute, nothing matched,
    nothing stored and no events, for SGLang's decode workers have no prefix cache by default."""


@dataclass(frozen=True, slots=True)
class Progress:
    """`generated` answer tokens exist since `at_us`."""

    request_id: str
    at_us: int
    generated: int
    cached_tokens: int
    """Prompt tokens that were reused, from either tier."""
    finished: bool
    cached_host_tokens: int = 0
    """Of these, tokens that were loaded back from DRAM."""


class Rejection(Enum):
    """Why a request was not taken."""

    QUEUE_FULL = "the request queue is full"
    TOO_LARGE = "the request needs more tokens than the KV cache holds"
    DUPLICATE_ID = "a request of this id is in flight"


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """What an engine tells of its load. Busy times are model time since the start, running work included."""

    running: int
    waiting: int
    waiting_tokens: int
    used_tokens: int
    capacity_tokens: int
    decoding: int
    step_us: int
    """Time of a decode step of the batch as it is now; 0 when nothing decodes."""
    prefill_busy_us: int
    decode_busy_us: int
    prompt_tokens: int
    cached_tokens: int
    generated_tokens: int
    cached_host_tokens: int
    """Of the cached tokens, those that were loaded back from DRAM."""
    host_used_tokens: int
    host_capacity_tokens: int
    waiting_uncached_tokens: int
    """What of the waiting prompts is likely not cached, by the hit rate so far (SGLang's estimate too)."""
    prefilled_tokens: int
    """Prompt tokens computed by prefills that have ended, and"""
    prefilled_us: int
    """the time these took: two readings give the measured prefill rate."""


@dataclass(slots=True, eq=False)
class _Job:
    request: EngineRequest
    chain: TokenChain
    holding: Holding | None = None
    cached_tokens: int = 0
    cached_host_tokens: int = 0
    generated: int = 0


class Engine:
    """Serial prefill in order of arrival; everything prefilled decodes together, one token a step."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.cache = BlockCache(
            config.page_size,
            config.cache_tokens // config.page_size,
            config.host_cache_tokens // config.page_size,
            config.eviction,
            config.tier_events,
        )
        self._waiting: deque[_Job] = deque()
        self._jobs: dict[str, _Job] = {}
        self._decoding: dict[str, _Job] = {}
        self._prefilling: _Job | None = None
        self._prefill_started_us = 0
        self._prefill_ends_us = 0
        self._step: list[_Job] | None = None
        self._step_started_us = 0
        self._step_ends_us = 0
        self._steps_since_batch = 0
        self._context_tokens = 0
        self._progress: list[Progress] = []
        self._batches: list[list[EngineEvent]] = []
        self._prefill_busy_us = 0
        self._decode_busy_us = 0
        self._prompt_tokens = 0
        self._cached_tokens = 0
        self._cached_host_tokens = 0
        self._generated_tokens = 0
        self._prefilled_tokens = 0
        self._prefilled_us = 0
        self._slowdown = 1.0
        self._publish()

    def submit(self, request: EngineRequest, now_us: int) -> Rejection | None:
        """Queue a request, or say why not. Hashing its pages costs about 1 us each."""
        self.advance(now_us)
        assert len(request.prompt) > 0
        if request.id in self._jobs:
            return Rejection.DUPLICATE_ID
        if self._blocks(request) > self.cache.capacity_blocks:
            return Rejection.TOO_LARGE
        if len(self._waiting) >= self.config.max_queued:
            return Rejection.QUEUE_FULL
        hashed = request.prompt[:0] if request.transferred else request.prompt
        job = _Job(request, TokenChain(hashed, self.config.page_size, request.scope))
        self._jobs[request.id] = job
        self._waiting.append(job)
        self._start(now_us)
        return None

    def abort(self, request_id: str, now_us: int) -> bool:
        """End a request now and free what it holds; False when it is not in flight.

        What it has computed in full stays cached, as in SGLang: nothing while it waits or is being
        prefilled, its prompt and answer so far once it decodes.
        """
        self.advance(now_us)
        job = self._jobs.pop(request_id, None)
        if job is None:
            return False
        if request_id in self._decoding:
            self._finish(job, now_us)
        elif job is self._prefilling:
            self._prefill_busy_us += now_us - self._prefill_started_us
            self._prefilling = None
            self._release(job)
        else:
            self._waiting.remove(job)
        self._start(now_us)
        self._publish_when_idle()
        return True

    def flush(self, now_us: int) -> bool:
        """Empty the cache; False while a request runs or waits (SGLang refuses then too)."""
        self.advance(now_us)
        if self._jobs:
            return False
        self.cache.clear()
        self._publish_when_idle()
        return True

    def set_eviction(self, policy: EvictionPolicy, now_us: int) -> None:
        """Evict by another policy from now on."""
        self.advance(now_us)
        self.cache.set_policy(policy)

    def set_slowdown(self, factor: float, now_us: int) -> None:
        """Prefills and decode steps that start from now on take `factor` times as long; 1.0 is full speed."""
        assert factor > 0
        self.advance(now_us)
        self._slowdown = factor

    def advance(self, now_us: int) -> None:
        """Settle everything up to and including `now_us`."""
        while (due := self.next_deadline_us()) is not None and due <= now_us:
            if self._prefilling is not None and self._prefill_ends_us == due:
                self._end_prefill()
            else:
                self._end_step()
            self._start(due)
            self._publish_when_idle()

    def next_deadline_us(self) -> int | None:
        """When something will happen next; None while idle."""
        deadlines = []
        if self._prefilling is not None:
            deadlines.append(self._prefill_ends_us)
        if self._step is not None:
            deadlines.append(self._step_ends_us)
        return min(deadlines, default=None)

    def take_progress(self) -> list[Progress]:
        """Progress since the last call, in order of time."""
        progress, self._progress = self._progress, []
        return progress

    def take_batches(self) -> list[list[EngineEvent]]:
        """Event batches since the last call, each to be published as one."""
        self._publish_when_idle()
        batches, self._batches = self._batches, []
        return batches

    def load(self, now_us: int) -> ModelLoad:
        """Load at this instant, running work counted up to it."""
        self.advance(now_us)
        prefilling = now_us - self._prefill_started_us if self._prefilling else 0
        stepping = now_us - self._step_started_us if self._step is not None else 0
        reserved = self.cache.capacity_blocks - self.cache.free_blocks - self.cache.resident_blocks
        return ModelLoad(
            running=len(self._jobs) - len(self._waiting),
            waiting=len(self._waiting),
            waiting_tokens=sum(len(job.request.prompt) for job in self._waiting),
            used_tokens=(reserved + self.cache.locked_blocks) * self.config.page_size,
            capacity_tokens=self.cache.capacity_blocks * self.config.page_size,
            decoding=len(self._decoding),
            step_us=self._decode_step_us() if self._decoding else 0,
            prefill_busy_us=self._prefill_busy_us + prefilling,
            decode_busy_us=self._decode_busy_us + stepping,
            prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens,
            cached_host_tokens=self._cached_host_tokens,
            host_used_tokens=self.cache.dram_blocks * self.config.page_size,
            host_capacity_tokens=self.cache.dram_capacity_blocks * self.config.page_size,
            waiting_uncached_tokens=self._waiting_uncached_tokens(),
            prefilled_tokens=self._prefilled_tokens,
            prefilled_us=self._prefilled_us,
        )

    def _waiting_uncached_tokens(self) -> int:
        waiting = sum(len(job.request.prompt) for job in self._waiting if not job.request.transferred)
        miss_rate = 1 - self._cached_tokens / self._prompt_tokens if self._prompt_tokens else 1
        return int(waiting * miss_rate)

    def _decode_step_us(self) -> int:
        return round(self._slowdown * self.config.timing.decode_step_us(self._context_tokens))

    def _blocks(self, request: EngineRequest) -> int:
        return -(-(len(request.prompt) + len(request.answer)) // self.config.page_size)

    def _start(self, at_us: int) -> None:
        """Begin whatever may begin at this instant."""
        while self._prefilling is None and self._waiting and len(self._decoding) < self.config.max_running:
            if not self._admit(self._waiting[0], at_us):
                break
        if self._step is None and self._decoding:
            self._step = list(self._decoding.values())
            self._step_started_us = at_us
            self._step_ends_us = at_us + self._decode_step_us()

    def _admit(self, job: _Job, at_us: int) -> bool:
        """Admit the head of the queue if the cache has room; nobody overtakes it."""
        request = job.request
        prompt = len(request.prompt)
        # The last token is always computed: its logits are the answer's first token.
        reusable = 0 if request.transferred else (prompt - 1) // self.config.page_size
        holding = self.cache.open(job.chain, reusable, self._blocks(request), at_us, request.workload)
        if holding is None:
            return False
        self._waiting.popleft()
        job.holding = holding
        if request.transferred:
            self._answer(job, at_us)
            return True
        job.cached_tokens = len(holding.path) * self.config.page_size
        job.cached_host_tokens = holding.loaded * self.config.page_size
        self._prompt_tokens += prompt
        self._cached_tokens += job.cached_tokens
        self._cached_host_tokens += job.cached_host_tokens
        self._prefilling = job
        self._prefill_started_us = at_us
        timing = self.config.timing
        duration = timing.prefill_us(job.cached_tokens, prompt - job.cached_tokens)
        duration += timing.reload_us(job.cached_host_tokens)
        self._prefill_ends_us = at_us + round(self._slowdown * duration)
        return True

    def _end_prefill(self) -> None:
        job = self._prefilling
        assert job is not None
        assert job.holding is not None
        self._prefilling = None
        duration = self._prefill_ends_us - self._prefill_started_us
        self._prefill_busy_us += duration
        self._prefilled_us += duration
        self._prefilled_tokens += len(job.request.prompt) - job.cached_tokens
        self.cache.store(job.holding, job.chain, self._prefill_ends_us)
        self._answer(job, self._prefill_ends_us)
        self._publish()

    def _answer(self, job: _Job, at_us: int) -> None:
        """The prompt's KV is here: give the first token, or end a request that wants none."""
        if len(job.request.answer):
            self._decoding[job.request.id] = job
            self._context_tokens += len(job.request.prompt)
            self._token(job, at_us)
        else:
            self._report(job, at_us)
            self._release(job)

    def _end_step(self) -> None:
        members = self._step
        assert members is not None
        self._step = None
        self._decode_busy_us += self._step_ends_us - self._step_started_us
        for job in members:
            if self._decoding.get(job.request.id) is job:
                self._token(job, self._step_ends_us)
        self._steps_since_batch += 1
        if self._steps_since_batch >= DECODE_STEPS_PER_BATCH:
            self._publish()

    def _token(self, job: _Job, at_us: int) -> None:
        job.generated += 1
        self._context_tokens += 1
        self._generated_tokens += 1
        if job.generated == len(job.request.answer):
            self._finish(job, at_us)
        self._report(job, at_us)

    def _report(self, job: _Job, at_us: int) -> None:
        finished = job.generated == len(job.request.answer)
        self._progress.append(
            Progress(
                job.request.id, at_us, job.generated, job.cached_tokens, finished, job.cached_host_tokens
            )
        )
        if finished:
            self._jobs.pop(job.request.id, None)

    def _finish(self, job: _Job, at_us: int) -> None:
        """Cache what was generated (the last token was never fed back, so it has no KV) and let go."""
        assert job.holding is not None
        del self._decoding[job.request.id]
        self._context_tokens -= len(job.request.prompt) + job.generated
        if not job.request.transferred:
            job.chain.extend(job.request.answer[: max(job.generated - 1, 0)])
            self.cache.store(job.holding, job.chain, at_us)
        self._release(job)

    def _release(self, job: _Job) -> None:
        assert job.holding is not None
        self.cache.close(job.holding)
        job.holding = None

    def _publish(self) -> None:
        self._steps_since_batch = 0
        if events := self.cache.take_events():
            self._batches.append(events)

    def _publish_when_idle(self) -> None:
        if not self._jobs:
            self._publish()
