"""Continuous batching: each iteration computes a chunk of prompts and a token of every answer."""

from kvcompass.engine_model.decode_batch import NEVER
from kvcompass.engine_model.job import Job
from kvcompass.engine_model.serving import Serving
from kvcompass.engine_model.timing import PS_PER_US, picoseconds


class Chunks:
    """A scheduler (see engine.py). Prompts are taken in order of arrival, the first one to its end.

    An iteration takes as long as reading the weights or as computing all its tokens, whichever is longer, and
    the attention of each chunk to what is before it and of each answer to its context. Prompts are cached up
    to their last computed page after each iteration, so others reuse what has been computed and no more.
    """

    due_us = NEVER
    """Prefills end with the iteration."""

    def __init__(self, serving: Serving) -> None:
        timing = serving.config.timing
        self._serving = serving
        self._base_ps = picoseconds(timing.decode_ms)
        self._token_ps = picoseconds(timing.prefill_ms_per_token)
        self._square_ps = picoseconds(timing.prefill_ms_per_token_squared)
        self._context_ps = picoseconds(timing.decode_ms_per_context_token)
        self._reload_ps = picoseconds(timing.reload_ms_per_token)
        self._jobs: list[Job] = []
        """Being prefilled, in order."""
        self._chunk: list[tuple[Job, int]] = []
        """What of them, in tokens, the iteration under way computes. Without any it is a decode step."""
        self._started_us = 0
        self._busy_us = 0
        self.boundary_wanted = False
        """Whether the end of the step under way is awaited."""

    def submitted(self, now_us: int) -> bool:
        """A request has come to wait; whether that changed anything else."""
        if self._chunk or len(self._serving.waiting) > 1:
            return False
        self.changed(now_us)
        return True

    def changed(self, now_us: int) -> None:
        """Something is otherwise, from outside: it counts from the next iteration on."""
        decode = self._serving.decode
        if self._chunk or not self._serving.waiting:
            return
        decode.turn_to_next(now_us)
        if decode.origin_ps > now_us * PS_PER_US:
            self.boundary_wanted = True
        else:
            self.start(now_us)

    def start(self, at_us: int) -> None:
        """Begin an iteration with a chunk, if there are prompts to compute. A step has just ended."""
        self.boundary_wanted = False
        serving = self._serving
        if not self._jobs and not serving.waiting:
            return
        decode = serving.decode
        budget = serving.config.chunk_tokens
        reloaded = 0
        for job in self._jobs:
            budget -= self._take(job, budget)
        while budget and serving.waiting:
            if decode.sequences + len(self._jobs) >= serving.config.max_running:
                break
            admitted = serving.admit(at_us)
            if admitted is None:
                break
            if not admitted.request.transferred:
                self._jobs.append(admitted)
                reloaded += admitted.cached_host_tokens
                budget -= self._take(admitted, budget)
        if self._chunk:
            self._started_us = at_us
            decode.take_step(round(serving.slowdown * self._chunk_ps(reloaded)))
            self.boundary_wanted = True

    def end_prefill(self, at_us: int) -> None:
        """Nothing is due beside iterations."""

    def end_step(self, at_us: int, /) -> bool:
        """An iteration has ended; whether prompts were computed in it. Those complete have a first token."""
        serving, chunk = self._serving, self._chunk
        if not chunk:
            return False
        self._chunk = []
        self._busy_us += at_us - self._started_us
        serving.prefilled_us += at_us - self._started_us
        page = serving.config.page_size
        for job, tokens in chunk:
            if job.holding is None:
                continue
            job.computed += tokens
            serving.prefilled_tokens += tokens
            serving.cache.store(job.holding, job.chain, at_us, job.computed // page)
            if job.computed == job.prompt:
                self._jobs.remove(job)
                serving.answer(job, at_us)
        return True

    def drop(self, job: Job, now_us: int) -> None:
        """End a request that is being prefilled. The iteration under way goes on to its end."""
        self._jobs.remove(job)
        self._serving.release(job)

    def busy_us(self, now_us: int) -> int:
        """Time spent on iterations with prefills."""
        return self._busy_us + (now_us - self._started_us if self._chunk else 0)

    def _take(self, job: Job, budget: int) -> int:
        """Have the iteration compute as much of a prompt as it may; return the tokens."""
        tokens = job.prompt - job.computed
        if tokens > budget:
            tokens = budget
        self._chunk.append((job, tokens))
        return tokens

    def _chunk_ps(self, reloaded: int) -> int:
        """Time of the iteration at full speed, with so many tokens loaded back before it."""
        decode = self._serving.decode
        tokens, squares = decode.sequences, 0
        for job, count in self._chunk:
            end = job.computed + count
            tokens += count
            squares += end * end - job.computed * job.computed
        return (
            max(self._base_ps, self._token_ps * tokens)
            + self._square_ps * squares
            + self._context_ps * decode.context
            + self._reload_ps * reloaded
        )
