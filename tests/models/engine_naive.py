"""The engine in its plainest form: every decode step is an event that walks over every sequence.

It shares the block cache and the times of single pieces of work with the engine, and nothing of its
bookkeeping. Times of steps are summed in picoseconds one by one; a step is over at the first whole
microsecond after its end.
"""

from dataclasses import dataclass, field

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import (
    EngineConfig,
    EngineRequest,
    EvictionPolicy,
    Progress,
    Rejection,
    Scheduling,
)
from kvcompass.engine_model.block_cache import BlockCache
from kvcompass.engine_model.holding import Holding
from kvcompass.engine_model.token_chain import TokenChain

PS = 1_000_000


@dataclass(eq=False)
class NaiveJob:
    request: EngineRequest
    chain: TokenChain
    holding: Holding | None = None
    cached: int = 0
    cached_host: int = 0
    computed: int = 0
    generated: int = 0


@dataclass(eq=False)
class NaiveStep:
    """A decode step, or an iteration that computes chunks of prompts too."""

    started_ps: int
    ends_ps: int
    members: list[NaiveJob]
    chunk: list[tuple[NaiveJob, int]] = field(default_factory=list)

    @property
    def ends_us(self) -> int:
        return -(-self.ends_ps // PS)


class NaiveEngine:
    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.chunked = config.scheduling is Scheduling.CHUNKED
        self.cache = BlockCache(
            config.page_size,
            config.cache_tokens // config.page_size,
            config.host_cache_tokens // config.page_size,
            config.eviction,
            config.tier_events,
            config.block_names,
        )
        self.waiting: list[NaiveJob] = []
        self.jobs: dict[str, NaiveJob] = {}
        self.decoding: list[NaiveJob] = []
        self.prefilling: list[NaiveJob] = []
        self.prefill_started_us = self.prefill_ends_us = 0
        self.step: NaiveStep | None = None
        self.steps_since_batch = 0
        self.progress: list[Progress] = []
        self.batches: list[list[EngineEvent]] = []
        self.prefill_busy_us = self.decode_busy_ps = 0
        self.prompt_tokens = self.cached_tokens = self.generated_tokens = 0
        self.prefilled_tokens = self.prefilled_us = 0
        self.slowdown = 1.0
        self.publish()

    def submit(self, request: EngineRequest, now_us: int) -> Rejection | None:
        self.advance(now_us)
        if request.id in self.jobs:
            return Rejection.DUPLICATE_ID
        if self.blocks(request) > self.cache.capacity_blocks:
            return Rejection.TOO_LARGE
        if len(self.waiting) >= self.config.max_queued:
            return Rejection.QUEUE_FULL
        prompt = request.prompt[:0] if request.transferred else request.prompt
        job = NaiveJob(request, TokenChain(prompt, self.config.page_size, request.scope))
        self.jobs[request.id] = job
        self.waiting.append(job)
        self.start(now_us, now_us * PS)
        return None

    def abort(self, request_id: str, now_us: int) -> bool:
        self.advance(now_us)
        job = self.jobs.pop(request_id, None)
        if job is None:
            return False
        if job in self.decoding:
            self.finish(job, now_us)
        elif job in self.prefilling:
            self.prefilling.remove(job)
            if not self.chunked:
                self.prefill_busy_us += now_us - self.prefill_started_us
            self.release(job)
        else:
            self.waiting.remove(job)
        self.start(now_us, now_us * PS)
        self.publish_when_idle()
        return True

    def set_eviction(self, policy: EvictionPolicy, now_us: int) -> None:
        self.advance(now_us)
        self.cache.set_policy(policy)

    def set_slowdown(self, factor: float, now_us: int) -> None:
        self.advance(now_us)
        self.slowdown = factor

    def advance(self, now_us: int) -> None:
        while (due := self.next_deadline_us()) is not None and due <= now_us:
            if not self.chunked and self.prefilling and self.prefill_ends_us == due:
                self.end_prefill()
                self.start(due, due * PS)
            else:
                assert self.step is not None
                ends_ps = self.step.ends_ps
                self.end_step()
                self.start(due, ends_ps)
            self.publish_when_idle()

    def next_deadline_us(self) -> int | None:
        deadlines = []
        if not self.chunked and self.prefilling:
            deadlines.append(self.prefill_ends_us)
        if self.step is not None:
            deadlines.append(self.step.ends_us)
        return min(deadlines, default=None)

    def load(self, now_us: int) -> dict[str, int]:
        self.advance(now_us)
        prefill_busy_us, decode_busy_ps = self.prefill_busy_us, self.decode_busy_ps
        if not self.chunked and self.prefilling:
            prefill_busy_us += now_us - self.prefill_started_us
        if self.step is not None and self.step.chunk:
            prefill_busy_us += now_us - self.prefill_started_us
        if self.step is not None and self.step.members:
            decode_busy_ps += now_us * PS - self.step.started_ps
        reserved = self.cache.capacity_blocks - self.cache.free_blocks - self.cache.resident_blocks
        context = sum(len(job.request.prompt) + job.generated for job in self.decoding)
        admitted = [job for job in self.jobs.values() if job.holding is not None]
        promised = sum(len(job.request.answer) - job.generated for job in admitted)
        timing = self.config.timing
        step_ms = timing.decode_ms + timing.decode_ms_per_context_token * context
        if self.chunked:
            step_ms = max(timing.decode_ms, timing.prefill_ms_per_token * len(self.decoding))
            step_ms += timing.decode_ms_per_context_token * context
        return {
            "running": len(self.jobs) - len(self.waiting),
            "waiting": len(self.waiting),
            "waiting_tokens": sum(len(job.request.prompt) for job in self.waiting),
            "used_tokens": (reserved + self.cache.locked_blocks) * self.config.page_size - promised,
            "decoding": len(self.decoding),
            "step_us": round(self.slowdown * 1_000 * step_ms) if self.decoding else 0,
            "prefill_busy_us": prefill_busy_us,
            "decode_busy_us": decode_busy_ps // PS,
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "generated_tokens": self.generated_tokens,
            "prefilled_tokens": self.prefilled_tokens,
            "prefilled_us": self.prefilled_us,
        }

    # --- what begins --------------------------------------------------------------------------------

    def start(self, at_us: int, at_ps: int) -> None:
        if self.chunked:
            if self.step is None:
                self.start_iteration(at_us, at_ps)
            return
        while not self.prefilling and self.waiting and len(self.decoding) < self.config.max_running:
            job = self.admit(at_us)
            if job is None:
                break
            if not job.request.transferred:
                self.prefilling = [job]
                self.prefill_started_us = at_us
                timing = self.config.timing
                duration = timing.prefill_us(job.cached, len(job.request.prompt) - job.cached)
                duration += timing.reload_us(job.cached_host)
                self.prefill_ends_us = at_us + round(self.slowdown * duration)
        if self.step is None and self.decoding:
            self.begin_step(at_ps, [])

    def start_iteration(self, at_us: int, at_ps: int) -> None:
        budget, chunk, reloaded = self.config.chunk_tokens, [], 0
        for job in self.prefilling:
            tokens = min(budget, len(job.request.prompt) - job.computed)
            chunk.append((job, tokens))
            budget -= tokens
        while budget and self.waiting:
            if len(self.decoding) + len(self.prefilling) >= self.config.max_running:
                break
            admitted = self.admit(at_us)
            if admitted is None:
                break
            if not admitted.request.transferred:
                self.prefilling.append(admitted)
                tokens = min(budget, len(admitted.request.prompt) - admitted.computed)
                chunk.append((admitted, tokens))
                budget -= tokens
                reloaded += admitted.cached_host
        if chunk:
            self.prefill_started_us = at_us
        if chunk or self.decoding:
            self.begin_step(at_ps, chunk, reloaded)

    def begin_step(self, at_ps: int, chunk: list[tuple[NaiveJob, int]], reloaded: int = 0) -> None:
        timing = self.config.timing
        whole_ps = round(timing.decode_ms * 1e9)
        context = sum(len(job.request.prompt) + job.generated for job in self.decoding)
        if not chunk:
            duration = round(self.slowdown * whole_ps)
            if self.chunked:
                each = round(self.slowdown * round(timing.prefill_ms_per_token * 1e9))
                duration = max(duration, each * len(self.decoding))
            duration += round(self.slowdown * round(timing.decode_ms_per_context_token * 1e9)) * context
        else:
            tokens = len(self.decoding) + sum(count for _, count in chunk)
            duration = max(whole_ps, round(timing.prefill_ms_per_token * 1e9) * tokens)
            duration += round(timing.decode_ms_per_context_token * 1e9) * context
            duration += round(timing.reload_ms_per_token * 1e9) * reloaded
            for job, count in chunk:
                squares = (job.computed + count) ** 2 - job.computed**2
                duration += round(timing.prefill_ms_per_token_squared * 1e9) * squares
            duration = round(self.slowdown * duration)
        self.step = NaiveStep(at_ps, at_ps + duration, list(self.decoding), chunk)

    def admit(self, at_us: int) -> NaiveJob | None:
        job = self.waiting[0]
        request = job.request
        prompt = len(request.prompt)
        reusable = 0 if request.transferred else (prompt - 1) // self.config.page_size
        holding = self.cache.open(job.chain, reusable, self.blocks(request), at_us, request.workload)
        if holding is None:
            return None
        self.waiting.pop(0)
        job.holding = holding
        if request.transferred:
            self.answer(job, at_us)
            return job
        job.computed = job.cached = holding.blocks * self.config.page_size
        job.cached_host = holding.loaded * self.config.page_size
        self.prompt_tokens += prompt
        self.cached_tokens += job.cached
        return job

    # --- what ends ----------------------------------------------------------------------------------

    def end_prefill(self) -> None:
        (job,) = self.prefilling
        assert job.holding is not None
        self.prefilling = []
        duration = self.prefill_ends_us - self.prefill_started_us
        self.prefill_busy_us += duration
        self.prefilled_us += duration
        self.prefilled_tokens += len(job.request.prompt) - job.cached
        self.cache.store(job.holding, job.chain, self.prefill_ends_us)
        self.answer(job, self.prefill_ends_us)
        self.publish()

    def end_step(self) -> None:
        step = self.step
        assert step is not None
        self.step = None
        at_us = step.ends_us
        if step.members:
            self.decode_busy_ps += step.ends_ps - step.started_ps
        if step.chunk:
            self.prefill_busy_us += at_us - self.prefill_started_us
            self.prefilled_us += at_us - self.prefill_started_us
        for job, count in step.chunk:
            if job.holding is None:
                continue
            job.computed += count
            self.prefilled_tokens += count
            self.cache.store(job.holding, job.chain, at_us, job.computed // self.config.page_size)
            if job.computed == len(job.request.prompt):
                self.prefilling.remove(job)
                self.answer(job, at_us)
        for job in step.members:
            if job in self.decoding:
                self.token(job, at_us)
        self.steps_since_batch += 1
        if step.chunk or self.steps_since_batch >= 40:
            self.publish()

    def answer(self, job: NaiveJob, at_us: int) -> None:
        if len(job.request.answer):
            self.decoding.append(job)
            self.token(job, at_us)
        else:
            self.report(job, at_us)
            self.release(job)

    def token(self, job: NaiveJob, at_us: int) -> None:
        job.generated += 1
        self.generated_tokens += 1
        if job.generated == len(job.request.answer):
            self.finish(job, at_us)
        self.report(job, at_us)

    def report(self, job: NaiveJob, at_us: int) -> None:
        finished = job.generated == len(job.request.answer)
        self.progress.append(
            Progress(job.request.id, at_us, job.generated, job.cached, finished, job.cached_host)
        )
        if finished:
            self.jobs.pop(job.request.id, None)

    def finish(self, job: NaiveJob, at_us: int) -> None:
        assert job.holding is not None
        self.decoding.remove(job)
        if not job.request.transferred:
            job.chain.extend(job.request.answer[: max(job.generated - 1, 0)])
            self.cache.store(job.holding, job.chain, at_us)
        self.release(job)

    def release(self, job: NaiveJob) -> None:
        assert job.holding is not None
        self.cache.close(job.holding)
        job.holding = None

    def publish(self) -> None:
        self.steps_since_batch = 0
        if events := self.cache.take_events():
            self.batches.append(events)

    def publish_when_idle(self) -> None:
        if not self.jobs:
            self.publish()

    def blocks(self, request: EngineRequest) -> int:
        return -(-(len(request.prompt) + len(request.answer)) // self.config.page_size)
