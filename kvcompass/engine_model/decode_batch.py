"""The sequences that decode together, a token each a step, settled in closed form."""

from heapq import heappop, heappush
from math import isqrt
from typing import Final

from kvcompass.engine_model.job import Job
from kvcompass.engine_model.timing import PS_PER_US

NEVER: Final = 1 << 62


class DecodeBatch:
    """Steps follow one another without a gap as long as there are sequences.

    A step takes `base + per_token * context`, the context grows by a token a sequence and step, so while the
    same sequences decode, the end of any step is a quadratic in its number and needs no loop. Time is in
    picoseconds: with integer constants sums are exact, whoever asks whenever.

    `steps` and `origin_ps` say where the present sequences start: at `origin_ps` exactly `steps` steps will
    have ended. That may lie ahead: the step that ends there then has other members. Before members change,
    `turn` moves the origin to the end of the step under way.
    """

    def __init__(self) -> None:
        self.base_ps = self.floor_ps = self.token_ps = 0
        """A step without context, at least; what each sequence computes; what a token of context adds."""
        self.sequences = 0
        """From the origin on."""
        self.context = 0
        """Their tokens at the origin."""
        self.prompts = 0
        """Tokens of their prompts."""
        self.steps = 0
        self.origin_ps = 0
        self.ended = 0
        """Steps whose end has been dealt with."""
        self._under_way = 0
        """Sequences in the step that ends at the origin, while it is under way."""
        self._tokens = 0
        """Made by `steps` steps."""
        self._busy_ps = 0
        """Up to the origin, and"""
        self._counted = False
        """whether that counts what is right before it."""
        self._finishes: list[tuple[int, int, Job]] = []
        """A heap of the step that ends each sequence, a number in order of joining, and the sequence."""
        self._joins = 0

    def step_ps(self, context: int) -> int:
        """Time of a step of the present sequences with so much context."""
        return max(self.base_ps, self.floor_ps * self.sequences) + self.token_ps * context

    def end_ps(self, step: int) -> int:
        """When so many steps will have ended, `step` being `steps` or more."""
        count = step - self.steps
        if not count:
            return self.origin_ps
        sequences, base_ps = self.sequences, self.base_ps
        floor_ps = self.floor_ps * sequences
        if base_ps < floor_ps:
            base_ps = floor_ps
        tokens = count * self.context + sequences * (count * (count - 1) // 2)
        return self.origin_ps + count * base_ps + self.token_ps * tokens

    def end_us(self, step: int) -> int:
        """The same in whole microseconds: the first at which it is over."""
        return -(-self.end_ps(step) // PS_PER_US)

    def completed(self, at_ps: int) -> int:
        """How many steps have ended by then; none but those between origin and `at_ps` are looked for."""
        past = at_ps - self.origin_ps
        if past < 0:
            return max(self.ended, self.steps - 1)
        if not self.sequences:
            return self.steps
        # The largest k with k * step + growth * k * (k - 1) / 2 <= past.
        step, growth = self.step_ps(self.context), self.token_ps * self.sequences
        if growth:
            linear = 2 * step - growth
            count = (isqrt(linear * linear + 8 * growth * past) - linear) // (2 * growth)
        elif step:
            count = past // step
        else:
            count = 0
        return self.steps + count

    def turn(self, step: int) -> None:
        """Move the origin to the end of a step, the one under way or one before it."""
        if step == self.steps:
            return
        end_ps = self.end_ps(step)
        made = self.sequences * (step - self.steps)
        self._busy_ps += end_ps - self.origin_ps
        self._counted = True
        self._tokens += made
        self.context += made
        self._under_way = self.sequences
        self.steps = step
        self.origin_ps = end_ps

    def take_step(self, duration_ps: int) -> None:
        """Let the step from the origin on take this long; it makes a token of each sequence all the same."""
        self._counted = self.sequences > 0
        if self._counted:
            self._busy_ps += duration_ps
        self._tokens += self.sequences
        self.context += self.sequences
        self._under_way = self.sequences
        self.steps += 1
        self.origin_ps += duration_ps

    def end(self, step: int) -> None:
        """A step has ended, and the next has not begun."""
        self.turn(step)
        self.ended = step
        self._under_way = 0

    def rest(self, at_us: int) -> None:
        """Without sequences time passes; the next step begins at `at_us` at the earliest."""
        if self.origin_ps < at_us * PS_PER_US:
            self.origin_ps = at_us * PS_PER_US
            self.ended = self.steps

    def turn_to_next(self, at_us: int) -> None:
        """Have the origin where the members may change at an instant between two steps' ends."""
        if self.sequences:
            self.turn(self.completed(at_us * PS_PER_US) + 1)
        else:
            self.rest(at_us)

    def join(self, job: Job) -> None:
        """Decode this sequence too from the origin on; it has its first token and wants more."""
        job.joined = self.steps
        self.sequences += 1
        self.context += job.prompt + 1
        self.prompts += job.prompt
        self._joins += 1
        heappush(self._finishes, (self.steps + job.answer - 1, self._joins, job))

    def leave(self, job: Job) -> None:
        """Decode it no more from the origin on, nor get its token of the step under way."""
        self.sequences -= 1
        self.context -= job.prompt + job.generated(self.steps)
        self.prompts -= job.prompt
        if self._under_way and job.joined < self.steps:
            self._under_way -= 1
            self._tokens -= 1

    def next_finish(self) -> int:
        """The step that ends a sequence next; NEVER without any."""
        finishes = self._finishes
        while finishes and finishes[0][2].holding is None:
            heappop(finishes)
        return finishes[0][0] if finishes else NEVER

    def finished(self) -> list[Job]:
        """Take the sequences out of the list whose last step is `steps`, in the order they joined."""
        jobs = []
        finishes = self._finishes
        while finishes and finishes[0][0] <= self.steps:
            job = heappop(finishes)[2]
            if job.holding is not None:
                jobs.append(job)
        return jobs

    def busy_us(self, at_us: int) -> int:
        """Time spent until then. Call with every step that has ended dealt with."""
        past = at_us * PS_PER_US - self.origin_ps
        counted = self._counted if past < 0 else self.sequences
        return (self._busy_ps + (past if counted else 0)) // PS_PER_US

    def made(self, at_us: int) -> tuple[int, int]:
        """Tokens made by the steps that have ended until then, and the context of the sequences then."""
        at_ps = at_us * PS_PER_US
        if at_ps < self.origin_ps:
            since = -self._under_way
        else:
            since = self.sequences * (self.completed(at_ps) - self.steps)
        return self._tokens + since, self.context + since
