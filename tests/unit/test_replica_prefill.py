"""Prefills of replicas: never on a busy worker, only into free memory, one at a time, all answered."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvcompass.roles.messages import PrefillAnswer, PrefillOutcome, ReplicaPrefill
from kvcompass.roles.queue_estimate import EngineLoad
from kvcompass.roles.replica_prefill import PrefillRules, PrefillStep, ReplicaPrefills, WorkerNow

RULES = PrefillRules(queued=3, running_most=2, step_tokens=100, spare_percent=20, tokens_most=1_000)
GROUP = "tenants"
POOL = 2_000
IDLE = EngineLoad(running=0, waiting=0, used_tokens=0, max_tokens=POOL)
MS = 1_000


def prefill(number: int, tokens: int = 250, deadline_ms: int = 10_000, group: str = GROUP) -> ReplicaPrefill:
    return ReplicaPrefill(number, group, np.arange(tokens, dtype=np.int32), deadline_ms)


@dataclass
class Worker:
    """One worker, and the clock."""

    now_us: int = 0
    now: WorkerNow = field(default_factory=lambda: WorkerNow(True, True, IDLE, 0, 0))

    def hears(
        self, after_ms: int = 1, *, serves: bool = True, exact: bool = True, cached: int = 0, **load: int
    ) -> "Worker":
        """A load comes after a while."""
        self.now_us += after_ms * MS
        self.now = WorkerNow(serves, exact, IDLE._replace(**load), self.now_us, cached)
        return self


def begun(rules: PrefillRules = RULES, tokens: int = 250) -> tuple[ReplicaPrefills, Worker, PrefillStep]:
    """One whose first step is under way at an idle worker."""
    role, worker = ReplicaPrefills(GROUP, rules), Worker()
    role.ask("edge", prefill(1, tokens), worker.now_us)
    step = role.turn(worker.now, worker.now_us)
    assert step is not None
    return role, worker, step


def outcomes(role: ReplicaPrefills) -> list[tuple[int, PrefillOutcome | None]]:
    return [(answer.id, answer.outcome) for _, answer in role.take_answers()]


def test_a_prefix_is_gone_through_in_steps_with_a_look_at_the_engine_between() -> None:
    role, worker, first = begun()
    step: PrefillStep | None = first
    lengths = []
    while step is not None:
        lengths.append(len(step.tokens))
        assert step.tokens.tolist() == list(range(len(step.tokens)))
        worker.now_us += 150 * MS
        role.step_ended(worker.now_us, computed=True)
        assert role.turn(worker.now, worker.now_us) is None, "no load since"
        worker.hears()
        step = role.turn(worker.now, worker.now_us)
    assert lengths == [100, 200, 250]
    assert role.take_answers() == [("edge", PrefillAnswer(1, PrefillOutcome.DONE, 250))]
    assert (role.tokens, role.under_way, role.due_us) == (250, False, None)


@pytest.mark.parametrize(
    ("request_", "outcome"),
    [
        (prefill(1, group="others"), PrefillOutcome.FOREIGN_GROUP),
        (prefill(1, tokens=1_001), PrefillOutcome.TOO_LONG),
    ],
)
def test_what_the_worker_could_never_hold_is_refused_at_once(
    request_: ReplicaPrefill, outcome: PrefillOutcome
) -> None:
    role = ReplicaPrefills(GROUP, RULES)
    role.ask("edge", request_, 0)
    assert outcomes(role) == [(1, outcome)]
    assert role.queued == 0


def test_the_queue_is_bounded_and_what_waits_behind_another_expires() -> None:
    role, worker, _ = begun()
    for number in range(2, 6):
        role.ask("edge", prefill(number, deadline_ms=number), worker.now_us)
    assert outcomes(role) == [(5, PrefillOutcome.QUEUE_FULL)]
    worker.hears(after_ms=3)
    role.turn(worker.now, worker.now_us)
    assert outcomes(role) == [(2, PrefillOutcome.EXPIRED), (3, PrefillOutcome.EXPIRED)]
    assert role.due_us == 4 * MS


@pytest.mark.parametrize(
    ("load", "outcome"),
    [
        ({"waiting": 1}, PrefillOutcome.BUSY),
        ({"running": 3}, PrefillOutcome.BUSY),
        ({"serves": False}, PrefillOutcome.NOT_KNOWN),
        ({"exact": False}, PrefillOutcome.NOT_KNOWN),
        ({"used_tokens": POOL * 8 // 10 - 249}, PrefillOutcome.NO_ROOM),
        ({"used_tokens": 1_000, "cached": POOL * 8 // 10 - 1_249}, PrefillOutcome.NO_ROOM),
        ({"max_tokens": 0}, PrefillOutcome.NO_ROOM),
    ],
    ids=str,
)
def test_one_waits_for_its_worker_until_its_deadline_and_for_memory_not_at_all(
    load: dict[str, Any], outcome: PrefillOutcome
) -> None:
    role, worker = ReplicaPrefills(GROUP, RULES), Worker().hears(**load)
    role.ask("edge", prefill(1, deadline_ms=50), worker.now_us)
    assert role.turn(worker.now, worker.now_us) is None
    if outcome is PrefillOutcome.NO_ROOM:
        assert outcomes(role) == [(1, outcome)]
        return
    assert outcomes(role) == []
    worker.now_us += 50 * MS
    role.turn(worker.now, worker.now_us)
    assert outcomes(role) == [(1, outcome)]


def test_one_begins_as_soon_as_the_worker_is_idle_again() -> None:
    role, worker = ReplicaPrefills(GROUP, RULES), Worker().hears(waiting=1)
    role.ask("edge", prefill(1), worker.now_us)
    assert role.turn(worker.now, worker.now_us) is None
    worker.hears(running=2, used_tokens=POOL * 8 // 10 - 250)
    assert role.turn(worker.now, worker.now_us) is not None


def test_an_old_load_says_nothing() -> None:
    role, worker = ReplicaPrefills(GROUP, RULES), Worker().hears()
    worker.now_us += RULES.load_age_us + 1
    role.ask("edge", prefill(1), worker.now_us)
    assert role.turn(worker.now, worker.now_us) is None


def test_what_is_cached_counts_as_free_where_it_may_be_evicted() -> None:
    for may_evict in (False, True):
        role = ReplicaPrefills(GROUP, replace(RULES, may_evict=may_evict))
        worker = Worker().hears(cached=POOL, exact=not may_evict)
        role.ask("edge", prefill(1), worker.now_us)
        assert (role.turn(worker.now, worker.now_us) is not None) == may_evict


@pytest.mark.parametrize("counted", [{"running": 1}, {"running": 0}, {"waiting": 1}], ids=str)
def test_its_own_step_is_no_other_request(counted: dict[str, Any]) -> None:
    role, worker, _ = begun()
    worker.hears(after_ms=200, **counted)
    assert not role.must_stop(worker.now, worker.now_us)


@pytest.mark.parametrize(
    ("after_ms", "load"),
    [(10, {"waiting": 2}), (250, {"waiting": 1}), (10, {"running": 2}), (10, {"running": 1, "waiting": 2})],
    ids=str,
)
def test_others_stop_it(after_ms: int, load: dict[str, Any]) -> None:
    role, worker, _ = begun()
    worker.hears(after_ms=after_ms, **load)
    assert role.must_stop(worker.now, worker.now_us)
    worker.hears()
    assert role.must_stop(worker.now, worker.now_us), "it stays so until the step has ended"
    role.step_ended(worker.now_us, computed=False)
    assert role.take_answers() == [("edge", PrefillAnswer(1, PrefillOutcome.ABORTED, 0))]


def test_one_that_comes_as_another_goes_is_seen_once_the_other_was_seen_to_be_gone() -> None:
    role, worker = ReplicaPrefills(GROUP, RULES), Worker().hears(running=2)
    role.ask("edge", prefill(1), worker.now_us)
    role.turn(worker.now, worker.now_us)
    for running, stops in ((3, False), (1, False), (2, False), (3, True)):
        worker.hears(running=running)
        assert role.must_stop(worker.now, worker.now_us) == stops


def test_a_load_from_before_the_step_stops_nothing() -> None:
    role, worker, _ = begun()
    old = worker.now._replace(load=IDLE._replace(waiting=9), heard_at_us=worker.now_us)
    assert not role.must_stop(old, worker.now_us + 1)


@pytest.mark.parametrize(
    ("load", "outcome"),
    [
        ({"waiting": 1}, PrefillOutcome.ABORTED),
        ({"running": 3}, PrefillOutcome.ABORTED),
        ({"used_tokens": POOL}, PrefillOutcome.NO_ROOM),
        ({"serves": False}, PrefillOutcome.NOT_KNOWN),
    ],
    ids=str,
)
def test_between_two_steps_it_is_asked_again_whether_it_may(
    load: dict[str, Any], outcome: PrefillOutcome
) -> None:
    role, worker, _ = begun()
    role.step_ended(worker.now_us, computed=True)
    worker.hears(**load)
    assert role.turn(worker.now, worker.now_us) is None
    assert role.take_answers() == [("edge", PrefillAnswer(1, outcome, 100))]


def test_a_step_that_the_engine_refuses_ends_the_prefill() -> None:
    role, worker, _ = begun()
    role.step_ended(worker.now_us, computed=False)
    assert outcomes(role) == [(1, PrefillOutcome.FAILED)]


@settings(max_examples=60, stateful_step_count=40, deadline=None)
class Prefills(RuleBasedStateMachine):
    """Any edges, any loads, any engine; the driver keeps to its order of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.role = ReplicaPrefills(GROUP, RULES)
        self.worker = Worker()
        self.asked: dict[int, int] = {}
        """Deadlines of what was not answered yet, by id."""
        self.step: PrefillStep | None = None
        self.number = 0
        self.went: dict[int, int] = {}
        """How far steps went, by id."""

    def told(self) -> None:
        for edge, answer in self.role.take_answers():
            assert edge == "edge"
            deadline_us = self.asked.pop(answer.id)
            assert (answer.outcome is PrefillOutcome.DONE) <= (answer.tokens > 0)
            if answer.outcome is PrefillOutcome.EXPIRED:
                assert self.worker.now_us >= deadline_us

    def turn(self) -> None:
        now = self.worker.now
        step = self.role.turn(now, self.worker.now_us)
        self.told()
        if step is None:
            return
        assert self.step is None, "one at a time"
        self.step = step
        load = now.load
        assert now.serves and now.exact
        assert (load.waiting, load.running) <= (0, RULES.running_most)
        assert self.worker.now_us - now.heard_at_us <= RULES.load_age_us
        current = min(self.asked)  # the one that was asked for first, of those that were not answered
        before = self.went.get(current, 0)
        assert load.used_tokens + now.cached_tokens + len(step.tokens) - before <= POOL * 8 // 10
        assert before < len(step.tokens) <= before + RULES.step_tokens
        assert self.worker.now_us < step.deadline_us
        self.went[current] = len(step.tokens)

    @rule(
        tokens=st.integers(1, 1_100),
        deadline_ms=st.integers(1, 2_000),
        group=st.sampled_from([GROUP, GROUP, "x"]),
    )
    def ask(self, tokens: int, deadline_ms: int, group: str) -> None:
        self.number += 1
        self.asked[self.number] = self.worker.now_us + deadline_ms * MS
        self.role.ask("edge", prefill(self.number, tokens, deadline_ms, group), self.worker.now_us)
        self.told()
        self.turn()

    @rule(
        after_ms=st.integers(1, 400),
        running=st.integers(0, 4),
        waiting=st.integers(0, 2),
        used=st.integers(0, POOL),
        cached=st.integers(0, POOL),
        serves=st.integers(0, 9),
    )
    def hear(self, after_ms: int, running: int, waiting: int, used: int, cached: int, serves: int) -> None:
        self.worker.hears(
            after_ms, serves=serves > 0, cached=cached, running=running, waiting=waiting, used_tokens=used
        )
        self.stop_or_turn()

    @rule()
    def hear_of_idleness(self) -> None:
        self.worker.hears()
        self.stop_or_turn()

    @rule(after_ms=st.integers(1, 500))
    def wait(self, after_ms: int) -> None:
        self.worker.now_us += after_ms * MS
        self.stop_or_turn()

    def stop_or_turn(self) -> None:
        if self.step is not None:
            late = self.worker.now_us >= self.step.deadline_us
            many = self.worker.now.load.waiting > 1
            fresh = self.worker.now.heard_at_us == self.worker.now_us
            must = self.role.must_stop(self.worker.now, self.worker.now_us)
            assert must or not (late or (many and fresh))
            if must:
                self.end(computed=False)
        self.turn()

    def end(self, *, computed: bool) -> None:
        self.step = None
        self.role.step_ended(self.worker.now_us, computed=computed)
        self.told()

    @precondition(lambda self: self.step is not None)
    @rule(computed=st.booleans(), after_ms=st.integers(0, 100))
    def engine_ends(self, computed: bool, after_ms: int) -> None:
        self.worker.now_us += after_ms * MS
        self.end(computed=computed)
        self.turn()

    @invariant()
    def all_is_bounded_and_counted(self) -> None:
        assert self.role.queued <= RULES.queued
        assert sum(self.role.outcomes.values()) == self.number - len(self.asked)
        assert len(self.asked) == self.role.queued + self.role.under_way

    def teardown(self) -> None:
        """In the end all deadlines are over."""
        if self.step is not None:
            self.end(computed=False)
        self.worker.now_us += 3_000 * MS
        self.turn()
        assert self.asked == {}
        assert self.role.due_us is None


test_any_history_keeps_the_rules = Prefills.TestCase
