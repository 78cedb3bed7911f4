"""One engine as a state machine over model time: a prefill queue, a decoding batch, a block cache.

No clock and no I/O. Every method is given `now_us`; what happened until then is settled first, each thing at
its own instant, so results do not depend on how often the engine is asked. Only instants are settled at which
something begins or ends: decode steps between them are sums (`DecodeBatch`).
"""

from typing import Protocol

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model.block_cache import BlockCache
from kvcompass.engine_model.chunks import Chunks
from kvcompass.engine_model.config import EngineConfig, Scheduling
from kvcompass.engine_model.decode_batch import NEVER
from kvcompass.engine_model.eviction import EvictionPolicy
from kvcompass.engine_model.job import Job
from kvcompass.engine_model.model_load import ModelLoad, QueueLoad
from kvcompass.engine_model.request import EngineRequest, Progress, Rejection
from kvcompass.engine_model.serving import Serving
from kvcompass.engine_model.timing import PS_PER_US
from kvcompass.engine_model.token_chain import TokenChain
from kvcompass.engine_model.turns import Turns


class Scheduler(Protocol):
    """How prompts are computed while answers are decoded."""

    @property
    def due_us(self) -> int:
        """When a prefill ends that no decode step waits for."""

    @property
    def boundary_wanted(self) -> bool:
        """Whether something is to be done at the end of the decode step under way."""

    def submitted(self, now_us: int) -> bool:
        """A request has come to wait; whether that changed anything else."""

    def changed(self, now_us: int) -> None:
        """Something is otherwise, from outside."""

    def start(self, at_us: int) -> None:
        """Begin whatever may begin, after something has ended at this instant."""

    def end_prefill(self, at_us: int) -> None:
        """What was due at `due_us`."""

    def end_step(self, at_us: int, /) -> bool:
        """A decode step has ended at this instant; whether that ended prefills too."""

    def drop(self, job: Job, now_us: int) -> None:
        """End a request that is being prefilled."""

    def busy_us(self, now_us: int) -> int:
        """Time spent on prefills."""


class Engine:
    """Requests in, progress and cache events out."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self._serving = serving = Serving(config)
        self._decode = serving.decode
        chunked = config.scheduling is Scheduling.CHUNKED
        self._scheduler: Scheduler = Chunks(serving) if chunked else Turns(serving)
        self._tells_tokens = config.token_progress
        self._step = 0
        """The decode step whose end is due at `_due_us`, unless a prefill's is."""
        self._due_us = NEVER
        serving.publish(0)

    @property
    def cache(self) -> BlockCache:
        """To look at."""
        return self._serving.cache

    def submit(self, request: EngineRequest, now_us: int) -> Rejection | None:
        """Queue a request, or say why not."""
        self.advance(now_us)
        serving = self._serving
        prompt, answer = len(request.prompt), len(request.answer)
        assert prompt > 0
        if request.id in serving.jobs:
            return Rejection.DUPLICATE_ID
        if -(-(prompt + answer) // self.config.page_size) > serving.cache.capacity_blocks:
            return Rejection.TOO_LARGE
        if len(serving.waiting) >= self.config.max_queued:
            return Rejection.QUEUE_FULL
        cached = request.prompt[:0] if request.transferred else request.prompt
        chain = TokenChain(cached, self.config.page_size, request.scope)
        serving.enqueue(Job(request, chain, prompt, answer))
        if self._scheduler.submitted(now_us):
            self._plan_after(now_us)
        return None

    def abort(self, request_id: str, now_us: int) -> bool:
        """End a request now and free what it holds; False when it is not in flight.

        What it has computed in full stays cached, as in SGLang: nothing while it waits, its prompt and answer
        so far once it decodes; while it is being prefilled, what earlier iterations have cached.
        """
        self.advance(now_us)
        serving = self._serving
        job = serving.jobs.pop(request_id, None)
        if job is None:
            return False
        if request_id in serving.decoding:
            self._decode.turn_to_next(now_us)
            serving.cut_short(job, now_us)
        elif job.holding is not None:
            self._scheduler.drop(job, now_us)
        else:
            serving.dequeue(job)
        self._scheduler.changed(now_us)
        if not serving.jobs:
            self._publish_idle(now_us)
        self._plan_after(now_us)
        return True

    def flush(self, now_us: int) -> bool:
        """Empty the cache; False while a request runs or waits (SGLang refuses then too)."""
        self.advance(now_us)
        if self._serving.jobs:
            return False
        self._serving.cache.clear()
        self._publish_idle(now_us)
        return True

    def set_eviction(self, policy: EvictionPolicy, now_us: int) -> None:
        """Evict by another policy from now on."""
        self.advance(now_us)
        self._serving.cache.set_policy(policy)

    def set_slowdown(self, factor: float, now_us: int) -> None:
        """Prefills and decode steps that start from now on take `factor` times as long; 1.0 is full speed."""
        assert factor > 0
        self.advance(now_us)
        self._decode.turn_to_next(now_us)
        self._serving.set_slowdown(factor)
        self._plan()

    def advance(self, now_us: int) -> None:
        """Settle everything up to and including `now_us`."""
        while (due := self._due_us) <= now_us:
            serving, scheduler = self._serving, self._scheduler
            if scheduler.due_us == due:
                scheduler.end_prefill(due)
            else:
                step = self._step
                self._decode.end(step)
                prefilled = scheduler.end_step(due)
                serving.take_tokens(due)
                if prefilled:
                    serving.publish(step)
                else:
                    serving.publish_now_and_then(step)
            scheduler.start(due)
            if not serving.jobs:
                self._publish_idle(due)
            self._plan()

    def next_deadline_us(self) -> int | None:
        """When something happens next that is told; None while idle.

        A prefill ends, a sequence finishes, a batch of events is due; with `token_progress` every token.
        """
        return self._due_us if self._due_us != NEVER else None

    def take_progress(self) -> list[Progress]:
        """Progress since the last call, in order of time."""
        progress, self._serving.progress = self._serving.progress, []
        return progress

    def take_batches(self) -> list[list[EngineEvent]]:
        """Event batches since the last call, each to be published as one."""
        batches, self._serving.batches = self._serving.batches, []
        return batches

    def load(self, now_us: int) -> ModelLoad:
        """Load at this instant, running work counted up to it."""
        queue = self.queue_load(now_us)
        serving, decode = self._serving, self._decode
        tokens, context = decode.made(now_us)
        step_ps = decode.step_ps(context) if decode.sequences else 0
        return ModelLoad(
            running=queue.running,
            waiting=queue.waiting,
            waiting_tokens=serving.waiting_tokens,
            used_tokens=queue.used_tokens,
            capacity_tokens=queue.capacity_tokens,
            decoding=queue.decoding,
            step_us=round(step_ps / PS_PER_US),
            prefill_busy_us=self._scheduler.busy_us(now_us),
            decode_busy_us=decode.busy_us(now_us),
            prompt_tokens=serving.prompt_tokens,
            cached_tokens=serving.cached_tokens,
            generated_tokens=serving.first_tokens + tokens,
            cached_host_tokens=serving.cached_host_tokens,
            waiting_uncached_tokens=queue.waiting_uncached_tokens,
            prefilled_tokens=queue.prefilled_tokens,
            prefilled_us=queue.prefilled_us,
        )

    def queue_load(self, now_us: int) -> QueueLoad:
        """The part of it that is cheap to tell."""
        if self._due_us <= now_us:
            self.advance(now_us)
        serving = self._serving
        cache, page = serving.cache, self.config.page_size
        waiting, uncached = len(serving.waiting), serving.waiting_prefill_tokens
        if uncached and serving.prompt_tokens:
            uncached = int(uncached * (1 - serving.cached_tokens / serving.prompt_tokens))
        reserved = cache.capacity_blocks - cache.free_blocks - cache.resident_blocks
        decode = self._decode
        generated = decode.made(now_us)[1] - decode.prompts if decode.sequences else 0
        return QueueLoad(
            len(serving.jobs) - waiting,
            waiting,
            (reserved + cache.locked_blocks) * page - (serving.answer_tokens - generated),
            cache.capacity_blocks * page,
            decode.sequences,
            uncached,
            serving.prefilled_tokens,
            serving.prefilled_us,
        )

    def _plan_after(self, now_us: int) -> None:
        """See _plan, where steps may have ended unseen before `now_us`."""
        decode = self._decode
        if not self._serving.cache.silent:
            ended = decode.completed(now_us * PS_PER_US)
            # A step whose end is awaited has not been dealt with, even one that takes no time.
            decode.ended = min(ended, decode.steps - 1) if self._scheduler.boundary_wanted else ended
        self._plan()

    def _plan(self) -> None:
        """Find out what is due next."""
        decode, scheduler = self._decode, self._scheduler
        ended, steps = decode.ended, decode.steps
        step = decode.next_finish()
        if not self._serving.cache.silent:
            publishing = self._serving.next_publishing(ended)
            if publishing < step:
                step = publishing
        if scheduler.boundary_wanted and step > steps:
            step = steps
        if self._tells_tokens and step > ended:
            step = ended + 1
        due_us = scheduler.due_us
        if ended < step <= (NEVER - 1 if decode.sequences else steps):
            step_us = decode.end_us(step)
            if step_us < due_us:
                due_us = step_us
        self._step, self._due_us = step, due_us

    def _publish_idle(self, at_us: int) -> None:
        self._serving.publish(self._decode.completed(at_us * PS_PER_US))
