"""The laws of a worker's queue estimate, `max(reported + unreported, backlog)`, after any history."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvcompass.fleet.in_flight import Flight
from kvcompass.fleet.view import FleetView
from tests.models.routing_fleets import MS, SECOND, load, make_plan

US_0, EU_0 = 0, 2
WORKERS = (US_0, EU_0)
NAMES = {US_0: "us-0", EU_0: "eu-0"}
ROUND_TRIP_US = {US_0: 1 * MS, EU_0: 320 * MS}
NOW_US = 100 * SECOND


def make_view() -> FleetView:
    view = FleetView(make_plan(), origin=0)
    for worker in WORKERS:
        view.report(worker, load(NAMES[worker]), NOW_US - 4 * SECOND)
    return view


def flight(worker: int, sent_us: int, work_ms: int) -> Flight:
    return Flight(worker, sent_us, work_ms * MS, 0, 0)


def queue_of(view: FleetView, worker: int, now_us: int) -> float:
    view.refresh(now_us)
    return float(view.queue_ms[worker])


@pytest.mark.parametrize("worker", WORKERS)
class TestAPrefillUnderWay:
    """An engine that computes one prompt and lets none wait reports an empty queue."""

    def test_it_counts_until_its_first_byte(self, worker: int) -> None:
        view = make_view()
        view.start("r", flight(worker, NOW_US, 3000))
        for i in range(1, 20):
            now_us = NOW_US + i * 100 * MS
            view.report(worker, load(NAMES[worker], 0.0, running=1), now_us)
            left_ms = min(3000.0, 3000.0 - i * 100 + float(view.wan_ms[worker]))
            assert left_ms <= queue_of(view, worker, now_us) <= 3000.0
        view.report(worker, load(NAMES[worker], 0.0, running=1), now_us + 1)
        view.first_byte("r", now_us + 1)
        assert queue_of(view, worker, now_us + 1) == pytest.approx(0.0, abs=1.0)

    def test_without_a_first_byte_it_counts_no_longer_than_it_takes(self, worker: int) -> None:
        """The first byte of an answer without streaming comes when all is over."""
        view = make_view()
        view.start("r", flight(worker, NOW_US, 300))
        over_us = NOW_US + round((300 + view.wan_ms[worker]) * 1000)
        view.report(worker, load(NAMES[worker], 0.0, running=1), over_us - 1)
        for _ in range(20):
            view.report(worker, load(NAMES[worker], 0.0, running=1), over_us)
        assert queue_of(view, worker, over_us - 1) == pytest.approx(0.0, abs=0.01)
        assert queue_of(view, worker, over_us) == pytest.approx(0.0, abs=0.001)

    def test_it_begins_when_those_before_it_are_done(self, worker: int) -> None:
        """Others' 800 ms are in the report; that 300 ms more come behind them is this edge's to know."""
        view = make_view()
        view.report(worker, load(NAMES[worker], 800.0), NOW_US)
        view.start("r", flight(worker, NOW_US, 300))
        for _ in range(20):
            view.report(worker, load(NAMES[worker], 0.0, running=1), NOW_US + 900 * MS)
        assert queue_of(view, worker, NOW_US + 900 * MS) == pytest.approx(200.0, abs=170.0)


@pytest.mark.parametrize("worker", WORKERS)
def test_own_work_counts_once_before_and_after_a_report_shows_it(worker: int) -> None:
    view = make_view()
    for i in range(10):
        view.start(i, flight(worker, NOW_US, 100))
    assert queue_of(view, worker, NOW_US) == 1000.0
    shown_us = NOW_US + ROUND_TRIP_US[worker]
    view.report(worker, load(NAMES[worker], 1000.0), shown_us)
    assert queue_of(view, worker, shown_us) == 1000.0


@pytest.mark.parametrize("report_ms", [0.0, 400.0, 1200.0, 3000.0])
def test_a_report_of_another_region_moves_the_estimate_by_its_weight(report_ms: float) -> None:
    """Also when own work is most of what was believed."""
    view = make_view()
    view.report(EU_0, load("eu-0", 1000.0), NOW_US)
    view.start("r", flight(EU_0, NOW_US, 200))
    shown_us = NOW_US + ROUND_TRIP_US[EU_0]
    view.report(EU_0, load("eu-0", report_ms), shown_us)
    assert queue_of(view, EU_0, shown_us) == pytest.approx(1200.0 + 0.5 * (report_ms - 1200.0))


@dataclass
class Sent:
    worker: int
    sent_us: int
    work_ms: int


class QueueMachine(RuleBasedStateMachine):
    """Any order of requests, first bytes, ends and reports at a worker here and one in another region."""

    def __init__(self) -> None:
        super().__init__()
        self.view = make_view()
        self.now_us = NOW_US
        self.prefills: dict[int, Sent] = {}
        self.shown_until_us = dict.fromkeys(WORKERS, 0)
        self.next_id = 0

    @rule(worker=st.sampled_from(WORKERS), work_ms=st.sampled_from((0, 7, 400, 2500)))
    def start(self, worker: int, work_ms: int) -> None:
        self.view.start(self.next_id, flight(worker, self.now_us, work_ms))
        self.prefills[self.next_id] = Sent(worker, self.now_us, work_ms)
        self.next_id += 1

    @precondition(lambda self: self.prefills)
    @rule(data=st.data(), ends=st.booleans())
    def leave(self, data: st.DataObject, ends: bool) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.prefills)))
        del self.prefills[request_id]
        (self.view.end if ends else self.view.first_byte)(request_id, self.now_us)

    @rule(pass_us=st.sampled_from((1, 10 * MS, 50 * MS, 330 * MS)))
    def wait(self, pass_us: int) -> None:
        self.now_us += pass_us

    @rule(
        worker=st.sampled_from(WORKERS),
        queue_ms=st.one_of(st.just(0.0), st.floats(0.0, 5000.0, allow_subnormal=False)),
        age_ms=st.integers(0, 200),
        live=st.booleans(),
    )
    def report(self, worker: int, queue_ms: float, age_ms: int, live: bool) -> None:
        self.view.report(worker, load(NAMES[worker], queue_ms, age_ms=age_ms), self.now_us, live=live)
        self.shown(worker, self.now_us if live else self.now_us - age_ms * MS)

    @rule(worker=st.sampled_from(WORKERS))
    def confirm(self, worker: int) -> None:
        """A report of what is believed, less what it cannot show, changes nothing."""
        before = queue_of(self.view, worker, self.now_us)
        self.shown(worker, self.now_us)
        until_us = self.shown_until_us[worker]
        unshown = sum(
            p.work_ms for p in self.prefills.values() if p.worker == worker and p.sent_us > until_us
        )
        self.view.report(worker, load(NAMES[worker], max(0.0, before - unshown)), self.now_us, live=True)
        assert queue_of(self.view, worker, self.now_us) == pytest.approx(before, abs=1e-6)

    def shown(self, worker: int, learned_us: int) -> None:
        until_us = learned_us - ROUND_TRIP_US[worker]
        self.shown_until_us[worker] = max(self.shown_until_us[worker], until_us)

    @invariant()
    def is_no_less_than_the_own_work_that_cannot_be_done_yet(self) -> None:
        for worker in WORKERS:
            own = [p for p in self.prefills.values() if p.worker == worker]
            arrived_us = min((p.sent_us for p in own), default=self.now_us) + ROUND_TRIP_US[worker] // 2
            done_ms = max(0, self.now_us - arrived_us) / 1000.0
            left_ms = sum(p.work_ms for p in own) - done_ms
            assert queue_of(self.view, worker, self.now_us) >= max(0.0, left_ms - 1e-6)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
