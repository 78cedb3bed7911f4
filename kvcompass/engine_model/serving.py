"""What every way of scheduling shares: the queue, the cache, the batch, and what is told of them."""

from collections import deque

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model.block_cache import BlockCache
from kvcompass.engine_model.config import EngineConfig, Scheduling
from kvcompass.engine_model.decode_batch import DecodeBatch
from kvcompass.engine_model.job import Job
from kvcompass.engine_model.request import Progress
from kvcompass.engine_model.timing import PS_PER_US, picoseconds

DECODE_STEPS_PER_BATCH = 40
"""SGLang publishes cache events after each prefill, every 40 decode steps and when idle."""


class Serving:
    """The state of an engine, and the steps of a request's life that are alike however it is scheduled."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.cache = BlockCache(
            config.page_size,
            config.cache_tokens // config.page_size,
            config.host_cache_tokens // config.page_size,
            config.eviction,
            config.tier_events,
            config.block_names,
        )
        self.decode = DecodeBatch()
        self.slowdown = 1.0
        self.set_slowdown(1.0)
        self.jobs: dict[str, Job] = {}
        """In flight."""
        self.waiting: deque[Job] = deque()
        self.decoding: dict[str, Job] = {}
        """In the order they joined the batch."""
        self.progress: list[Progress] = []
        self.batches: list[list[EngineEvent]] = []
        self.waiting_tokens = 0
        self.waiting_prefill_tokens = 0
        """Of them, tokens of prompts that are to be computed or reused."""
        self.answer_tokens = 0
        """That those admitted will have at their ends; room is kept for them."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.cached_host_tokens = 0
        self.first_tokens = 0
        """Answers that have begun."""
        self.prefilled_tokens = 0
        self.prefilled_us = 0
        self._published_at_step = 0

    def set_slowdown(self, factor: float) -> None:
        """Take `factor` times as long for what starts from now on. No decode step may be under way."""
        timing, decode = self.config.timing, self.decode
        self.slowdown = factor
        decode.base_ps = round(factor * picoseconds(timing.decode_ms))
        decode.token_ps = round(factor * picoseconds(timing.decode_ms_per_context_token))
        if self.config.scheduling is Scheduling.CHUNKED:
            decode.floor_ps = round(factor * picoseconds(timing.prefill_ms_per_token))

    def enqueue(self, job: Job) -> None:
        """Let a request wait."""
        self.jobs[job.request.id] = job
        self.waiting.append(job)
        self._count_waiting(job, 1)

    def dequeue(self, job: Job) -> None:
        """End a request that waits."""
        self.waiting.remove(job)
        self._count_waiting(job, -1)

    def admit(self, at_us: int) -> Job | None:
        """Give the head of the queue its room in the cache; None when there is too little.

        Nobody overtakes it. A request that brings its KV has its first token at once.
        """
        job = self.waiting[0]
        request, page = job.request, self.config.page_size
        # The last token is always computed: its logits are the answer's first token.
        reusable = 0 if request.transferred else (job.prompt - 1) // page
        holding = self.cache.open(
            job.chain, reusable, -(-(job.prompt + job.answer) // page), at_us, request.workload
        )
        if holding is None:
            return None
        self.waiting.popleft()
        self._count_waiting(job, -1)
        job.holding = holding
        self.answer_tokens += job.answer
        if request.transferred:
            self.answer(job, at_us)
            return job
        job.computed = job.cached_tokens = holding.blocks * page
        job.cached_host_tokens = holding.loaded * page
        self.prompt_tokens += job.prompt
        self.cached_tokens += job.cached_tokens
        self.cached_host_tokens += job.cached_host_tokens
        return job

    def answer(self, job: Job, at_us: int) -> None:
        """The prompt's KV is here: give the first token, or end a request that wants none."""
        if job.answer > 1:
            assert job.holding is not None
            job.chain.forget(job.holding.blocks)
            self.first_tokens += 1
            self.decoding[job.request.id] = job
            self.decode.join(job)
            self._report(job, 1, at_us)
        elif job.answer:
            self.first_tokens += 1
            self._keep(job, 1, at_us)
            self._report(job, 1, at_us)
        else:
            self._report(job, 0, at_us)
            self.release(job)

    def take_tokens(self, at_us: int) -> None:
        """A decode step has just ended: tell its tokens, or only those that end a sequence."""
        if self.config.token_progress:
            steps = self.decode.steps
            for job in list(self.decoding.values()):
                if job.joined < steps and job.generated(steps) < job.answer:
                    self._report(job, job.generated(steps), at_us)
                elif job.joined < steps:
                    self._end(job, at_us)
        else:
            for job in self.decode.finished():
                self._end(job, at_us)

    def cut_short(self, job: Job, at_us: int) -> None:
        """End a sequence of the batch now. Its step under way has been turned to."""
        generated = job.generated(self.decode.completed(at_us * PS_PER_US))
        del self.decoding[job.request.id]
        self.decode.leave(job)
        self._keep(job, generated, at_us)

    def release(self, job: Job) -> None:
        """Let go of what a request holds."""
        assert job.holding is not None
        self.cache.close(job.holding)
        job.holding = None
        self.answer_tokens -= job.answer

    def publish(self, step: int) -> None:
        """Make a batch of the events so far, `step` decode steps having ended."""
        self._published_at_step = step
        if events := self.cache.take_events():
            self.batches.append(events)

    def publish_now_and_then(self, step: int) -> None:
        """The same if it is time to: every so many steps."""
        if (step - self._published_at_step) % DECODE_STEPS_PER_BATCH == 0:
            self.publish(step)

    def next_publishing(self, ended: int) -> int:
        """The step at whose end there will be a batch, `ended` having ended and something being there."""
        since = ended - self._published_at_step
        return ended + DECODE_STEPS_PER_BATCH - since % DECODE_STEPS_PER_BATCH

    def _count_waiting(self, job: Job, sign: int) -> None:
        self.waiting_tokens += sign * job.prompt
        if not job.request.transferred:
            self.waiting_prefill_tokens += sign * job.prompt

    def _end(self, job: Job, at_us: int) -> None:
        del self.decoding[job.request.id]
        self.decode.leave(job)
        self._keep(job, job.answer, at_us)
        self._report(job, job.answer, at_us)

    def _keep(self, job: Job, generated: int, at_us: int) -> None:
        """Cache what was generated (the last token was never fed back, so it has no KV) and let go."""
        assert job.holding is not None
        if not job.request.transferred:
            job.chain.extend(job.request.answer[: generated - 1])
            self.cache.store(job.holding, job.chain, at_us)
        self.release(job)

    def _report(self, job: Job, generated: int, at_us: int) -> None:
        name, finished = job.request.id, generated == job.answer
        self.progress.append(
            Progress(name, at_us, generated, job.cached_tokens, finished, job.cached_host_tokens)
        )
        if finished:
            self.jobs.pop(name, None)
