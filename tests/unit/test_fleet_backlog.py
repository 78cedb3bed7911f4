"""What remains of own prefills, against a worker that computes a microsecond of work each microsecond."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvcompass.fleet.backlog import Backlog
from tests.models.routing_fleets import remaining

WORKERS = 2
workers = st.integers(0, WORKERS - 1)


def test_work_is_whole_until_it_begins_then_ages_and_is_never_negative() -> None:
    backlog = Backlog(1)
    backlog.add("a", 0, 100, begins_us=50)
    assert [remaining(backlog, now_us)[0] for now_us in (0, 50, 90, 150, 1000)] == [100, 100, 60, 0, 0]


def test_one_begins_when_the_one_before_is_over() -> None:
    backlog = Backlog(1)
    backlog.add("a", 0, 100, begins_us=0)
    backlog.add("b", 0, 100, begins_us=0)
    assert [remaining(backlog, now_us)[0] for now_us in (0, 40, 100, 130, 200)] == [200, 160, 100, 70, 0]


@pytest.mark.parametrize(("first", "left"), [("a", 100), ("b", 60)])
def test_a_first_byte_takes_out_its_own(first: str, left: int) -> None:
    """When the one being computed is done early, the next one begins."""
    backlog = Backlog(1)
    backlog.add("a", 0, 100, begins_us=0)
    backlog.add("b", 0, 100, begins_us=0)
    backlog.remove(first, 0, now_us=40)
    assert remaining(backlog, 40) == [left]
    assert remaining(backlog, 50) == [left - 10]


def test_a_late_first_byte_holds_nobody_up() -> None:
    """That of an answer without streaming comes after its last token."""
    backlog = Backlog(1)
    for i in range(10):
        backlog.add(i, 0, 100, begins_us=0)
    assert remaining(backlog, 950) == [50]
    for i in range(10):
        backlog.remove(i, 0, now_us=1000 + i)
        assert remaining(backlog, 1000 + i) == [0]


@dataclass
class NaivePrefill:
    worker: int
    left_us: int
    begins_us: int


class BacklogMachine(RuleBasedStateMachine):
    """Any order of requests and first bytes, against a loop over every microsecond."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(WORKERS)
        self.naive: dict[int, NaivePrefill] = {}
        self.now_us = self.next_id = 0

    @rule(worker=workers, work_us=st.integers(0, 30), wait_us=st.integers(0, 40))
    def add(self, worker: int, work_us: int, wait_us: int) -> None:
        self.backlog.add(self.next_id, worker, work_us, self.now_us + wait_us)
        self.naive[self.next_id] = NaivePrefill(worker, work_us, self.now_us + wait_us)
        self.next_id += 1

    @rule(back=st.integers(0, 5))
    def remove(self, back: int) -> None:
        request_id = self.next_id - 1 - back
        if request_id in self.naive:
            self.backlog.remove(request_id, self.naive.pop(request_id).worker, self.now_us)

    @rule(pass_us=st.integers(1, 60))
    def compute(self, pass_us: int) -> None:
        for _ in range(pass_us):
            for worker in range(WORKERS):
                # One without work holds up those behind it too, until it begins.
                waiting = (p for p in self.naive.values() if p.worker == worker)
                first = next((p for p in waiting if p.left_us > 0 or p.begins_us > self.now_us), None)
                if first is not None and first.begins_us <= self.now_us:
                    first.left_us -= 1
            self.now_us += 1

    @invariant()
    def remains_what_was_not_computed(self) -> None:
        left = [
            sum(p.left_us for p in self.naive.values() if p.worker == worker) for worker in range(WORKERS)
        ]
        assert remaining(self.backlog, self.now_us) == left


TestBacklog = BacklogMachine.TestCase
TestBacklog.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
