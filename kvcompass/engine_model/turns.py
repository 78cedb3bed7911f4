"""Prompts in turns: one prefill after the other, beside a batch that decodes undisturbed."""

from kvcompass.engine_model.decode_batch import NEVER
from kvcompass.engine_model.job import Job
from kvcompass.engine_model.serving import Serving
from kvcompass.engine_model.timing import PS_PER_US


class Turns:
    """A scheduler (see engine.py). A prefill ends before a decode step begins, so its sequence joins that."""

    boundary_wanted = False
    """Steps end without it."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._job: Job | None = None
        self._started_us = 0
        self._busy_us = 0
        self.due_us = NEVER
        """When the prefill ends."""

    def submitted(self, now_us: int) -> bool:
        """A request has come to wait; whether that changed anything else."""
        if self._job is not None:
            return False
        self.changed(now_us)
        return True

    def changed(self, now_us: int) -> None:
        """Something is otherwise, from outside. The decode step under way goes on as it is."""
        decode = self._serving.decode
        if self._job is None and self._serving.waiting:
            if self._serving.waiting[0].request.transferred:
                decode.turn_to_next(now_us)
            self.start(now_us)
            if self.due_us == now_us:
                # It takes no time, and steps that end in this instant have ended before it.
                decode.ended = max(decode.ended, decode.completed(now_us * PS_PER_US))

    def start(self, at_us: int) -> None:
        """Begin whatever may begin at this instant."""
        serving = self._serving
        while self._job is None and serving.waiting:
            if serving.decode.sequences >= serving.config.max_running:
                return
            job = serving.admit(at_us)
            if job is None:
                return
            if not job.request.transferred:
                timing = serving.config.timing
                duration = timing.prefill_us(job.cached_tokens, job.prompt - job.cached_tokens)
                duration += timing.reload_us(job.cached_host_tokens)
                self._job = job
                self._started_us = at_us
                self.due_us = at_us + round(serving.slowdown * duration)

    def end_prefill(self, at_us: int) -> None:
        """What was due at `due_us`."""
        job, serving, decode = self._job, self._serving, self._serving.decode
        assert job is not None
        assert job.holding is not None
        self._job = None
        self.due_us = NEVER
        duration = at_us - self._started_us
        self._busy_us += duration
        serving.prefilled_us += duration
        serving.prefilled_tokens += job.prompt - job.cached_tokens
        serving.cache.store(job.holding, job.chain, at_us)
        decode.ended = ended = max(decode.ended, decode.completed((at_us - 1) * PS_PER_US))
        if decode.sequences:
            decode.turn(ended + 1)
        else:
            decode.rest(at_us)
        serving.answer(job, at_us)
        serving.publish(ended)

    def end_step(self, _at_us: int, /) -> bool:
        """A decode step has ended; whether that ended prefills too."""
        return False

    def drop(self, job: Job, now_us: int) -> None:
        """End a request that is being prefilled."""
        assert job is self._job
        self._busy_us += now_us - self._started_us
        self._job = None
        self.due_us = NEVER
        self._serving.release(job)

    def busy_us(self, now_us: int) -> int:
        """Time spent on prefills."""
        return self._busy_us + (now_us - self._started_us if self._job is not None else 0)
