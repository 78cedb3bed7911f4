"""Prefills of replicas at one worker: when one may begin, how far it goes at a time, when it must be stopped.

A replica is computed where nobody waits for the engine and into memory that nobody uses (paper 3.3: at an
idle worker, "so as not to evict the KV caches already serving"). One at a time, and in steps: the engine is
given a prefix of the prefix, then a longer one, of which it reuses what it has. So requests that come
meanwhile wait for a step at most, also at engines whose prefills cannot be stopped midway.
"""

from collections import Counter, deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.roles.messages import PrefillAnswer, PrefillOutcome, ReplicaPrefill
from kvcompass.roles.queue_estimate import EngineLoad


@dataclass(frozen=True, slots=True)
class PrefillRules:
    """What a worker lets replicas take. Every default says why."""

    queued: int = 8
    """Prefills that wait; one more is refused, so that the edge asks elsewhere."""
    running_most: int = 4
    """Requests that the engine may run when one begins. Their answers stand still for a step, as they do for
    any other prompt; more of them are a busy worker."""
    step_tokens: int = 2_048
    """Computed at a time: some 150 ms of an A100 with an 8B model (docs/decisions/0601)."""
    spare_percent: int = 10
    """Of the KV pool, that stays free: for the answers under way and the next prompt."""
    may_evict: bool = False
    """Count what is cached and not in use as free. A replica then takes the place of what was used least
    recently, and it need not be known what the worker holds."""
    tokens_most: int = 131_072
    """The model's context."""
    load_age_us: int = 1_000_000
    """An older load says nothing of the engine now."""
    grace_us: int = 250_000
    """After a step has begun, its own request may still be the one that waits: for the end of a decode step,
    and of the answer that a load came with."""


class WorkerNow(NamedTuple):
    """What an agent knows of its worker."""

    serves: bool
    """It answers, and the plan and its engine agree."""
    exact: bool
    """All that it holds is known."""
    load: EngineLoad
    heard_at_us: int
    """When the load came."""
    cached_tokens: int
    """Held in its VRAM, in use or not. More than it is where that is not known."""


@dataclass(frozen=True, slots=True, eq=False)
class PrefillStep:
    """What the engine is to go through next, generating nothing."""

    number: int
    """Of all steps."""
    tokens: NDArray[np.int32]
    """From the first token of the prefix on."""
    deadline_us: int


class _Asked(NamedTuple):
    edge_id: str
    request: ReplicaPrefill
    deadline_us: int


class ReplicaPrefills:
    """The queue of one worker, and the prefill under way.

    The driver calls `turn` when something is new (a prefill was asked for, a load came, time has passed) and
    gives the engine the step it returns; asks `must_stop` at every load until the step has ended, and ends it
    early when told to; then calls `step_ended`. It sends what `take_answers` returns. Every prefill asked for
    is answered once, at most one step's end after its deadline.
    """

    def __init__(self, sharing_group: str, rules: PrefillRules) -> None:
        """Start with nothing asked for, at a worker of this sharing group."""
        self._group = sharing_group
        self._rules = rules
        self._queue: deque[_Asked] = deque()
        self._current: _Asked | None = None
        self._done_tokens = 0
        """Of the current one."""
        self._step: PrefillStep | None = None
        self._began_at_us = 0
        self._ended_at_us = 0
        """The step, and the one before."""
        self._others = 0
        """Requests of others that ran when the step began, or fewer seen since."""
        self._stopping: PrefillOutcome | None = None
        self._obstacle = PrefillOutcome.NOT_KNOWN
        """Why the first of the queue has not begun."""
        self._answers: list[tuple[str, PrefillAnswer]] = []
        self._steps = 0
        self.outcomes: Counter[PrefillOutcome] = Counter()
        """Prefills by how they ended. Monotonic, as is the next."""
        self.tokens = 0
        """That the engine went through, steps that were stopped left out."""

    @property
    def queued(self) -> int:
        """Prefills that wait."""
        return len(self._queue)

    @property
    def under_way(self) -> bool:
        """Whether one has begun and not ended."""
        return self._current is not None

    @property
    def due_us(self) -> int | None:
        """The next deadline; None when nothing was asked for."""
        waiting = [asked.deadline_us for asked in self._queue]
        if self._current is not None:
            waiting.append(self._current.deadline_us)
        return min(waiting, default=None)

    def ask(self, edge_id: str, request: ReplicaPrefill, now_us: int) -> None:
        """An edge asks for a prefill. It is queued, or answered at once."""
        asked = _Asked(edge_id, request, now_us + request.deadline_ms * 1_000)
        if request.sharing_group != self._group:
            self._answer(asked, PrefillOutcome.FOREIGN_GROUP)
        elif len(request.tokens) > self._rules.tokens_most:
            self._answer(asked, PrefillOutcome.TOO_LONG)
        elif len(self._queue) >= self._rules.queued:
            self._answer(asked, PrefillOutcome.QUEUE_FULL)
        else:
            if not self._queue:
                self._obstacle = PrefillOutcome.NOT_KNOWN
            self._queue.append(asked)

    def turn(self, worker: WorkerNow, now_us: int) -> PrefillStep | None:
        """Return the step to begin now, if one may. Answers what cannot be done any more."""
        self._expire(now_us)
        if self._step is not None:
            return None
        if self._current is not None:
            return self._go_on(worker, now_us)
        while self._queue:
            first = self._queue[0]
            obstacle = self._obstacle_of(first, 0, worker, now_us)
            if obstacle is None:
                self._current = self._queue.popleft()
                return self._begin(worker.load, now_us)
            if obstacle is not PrefillOutcome.NO_ROOM:
                self._obstacle = obstacle
                return None
            self._answer(self._queue.popleft(), obstacle)
        return None

    def must_stop(self, worker: WorkerNow, now_us: int) -> bool:
        """Whether the step under way is to be ended now: its deadline is over, or other requests have come.

        An engine counts a prompt that it computes as running (vLLM) or not at all (SGLang), and one that it
        has just been given as waiting.
        """
        if self._step is None or self._stopping is not None:
            return self._stopping is not None
        load = worker.load
        if now_us >= self._step.deadline_us:
            self._stopping = PrefillOutcome.EXPIRED
        elif not worker.serves:
            self._stopping = PrefillOutcome.NOT_KNOWN
        elif worker.heard_at_us > self._began_at_us:
            own_waiting = int(worker.heard_at_us < self._began_at_us + self._rules.grace_us)
            if load.waiting > own_waiting or load.running > self._others + 1:
                self._stopping = PrefillOutcome.ABORTED
            self._others = min(self._others, load.running)
        return self._stopping is not None

    def step_ended(self, now_us: int, *, computed: bool) -> None:
        """The engine has ended the step. `computed`: it went through all of it."""
        assert self._step is not None and self._current is not None, "no step is under way"
        step, self._step = self._step, None
        stopping, self._stopping = self._stopping, None
        self._ended_at_us = now_us
        if computed:
            self.tokens += len(step.tokens) - self._done_tokens
            self._done_tokens = len(step.tokens)
        if computed and self._done_tokens == len(self._current.request.tokens):
            self._end(PrefillOutcome.DONE)
        elif stopping is not None:
            self._end(stopping)
        elif not computed:
            self._end(PrefillOutcome.FAILED)

    def take_answers(self) -> list[tuple[str, PrefillAnswer]]:
        """Return what to tell, each with the edge that asked. Take them after each call of another method."""
        answers, self._answers = self._answers, []
        return answers

    def _go_on(self, worker: WorkerNow, now_us: int) -> PrefillStep | None:
        """The next step of the one under way, once a load has come that this one is no part of."""
        assert self._current is not None
        if worker.heard_at_us <= self._ended_at_us:
            return None
        obstacle = self._obstacle_of(self._current, self._done_tokens, worker, now_us)
        if obstacle is None:
            return self._begin(worker.load, now_us)
        self._end(PrefillOutcome.ABORTED if obstacle is PrefillOutcome.BUSY else obstacle)
        return None

    def _begin(self, load: EngineLoad, now_us: int) -> PrefillStep:
        assert self._current is not None
        tokens = self._current.request.tokens
        self._steps += 1
        self._step = PrefillStep(
            self._steps,
            tokens[: self._done_tokens + self._rules.step_tokens],
            self._current.deadline_us,
        )
        self._began_at_us = now_us
        self._others = load.running
        return self._step

    def _obstacle_of(
        self, asked: _Asked, done_tokens: int, worker: WorkerNow, now_us: int
    ) -> PrefillOutcome | None:
        """What keeps a prefill from going on now; None when it may."""
        rules, load = self._rules, worker.load
        if not worker.serves or not (worker.exact or rules.may_evict):
            return PrefillOutcome.NOT_KNOWN
        if now_us - worker.heard_at_us > rules.load_age_us:
            return PrefillOutcome.NOT_KNOWN
        if load.waiting or load.running > rules.running_most:
            return PrefillOutcome.BUSY
        taken = load.used_tokens if rules.may_evict else load.used_tokens + worker.cached_tokens
        spare = load.max_tokens * rules.spare_percent // 100
        if taken + len(asked.request.tokens) - done_tokens > load.max_tokens - spare:
            return PrefillOutcome.NO_ROOM
        return None

    def _expire(self, now_us: int) -> None:
        first = self._queue[0] if self._queue else None
        for asked in [each for each in self._queue if now_us >= each.deadline_us]:
            self._queue.remove(asked)
            waited_for_worker = asked is first and self._current is None
            self._answer(asked, self._obstacle if waited_for_worker else PrefillOutcome.EXPIRED)
        if self._current is not None and self._step is None and now_us >= self._current.deadline_us:
            self._end(PrefillOutcome.EXPIRED)

    def _end(self, outcome: PrefillOutcome) -> None:
        assert self._current is not None
        current, self._current = self._current, None
        self._answer(current, outcome, self._done_tokens)
        self._done_tokens = 0
        self._obstacle = PrefillOutcome.NOT_KNOWN

    def _answer(self, asked: _Asked, outcome: PrefillOutcome, tokens: int = 0) -> None:
        self.outcomes[outcome] += 1
        self._answers.append((asked.edge_id, PrefillAnswer(asked.request.id, outcome, tokens)))
