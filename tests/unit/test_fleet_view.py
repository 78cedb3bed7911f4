"""What an edge makes of load reports, of their absence, and of its own work that no report shows yet.

The laws of the estimate as a whole are in `test_fleet_queue.py`.
"""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from kvcompass.fleet import WorkerState
from kvcompass.fleet.in_flight import Flight
from kvcompass.fleet.view import FleetView, Standing
from kvcompass.plan.model import RoutingRule
from tests.models.routing_fleets import MS, SECOND, load, make_plan

US_0, US_1, EU_0 = 0, 1, 2
LEASE_US = RoutingRule().lease_ms * MS
ROUND_TRIP_US = 320 * MS
"""us - eu."""
NOW_US = 100 * SECOND


def make_view() -> FleetView:
    return FleetView(make_plan(), origin=0)


def flight(worker: int, sent_us: int, work_ms: int) -> Flight:
    return Flight(worker, sent_us, work_ms * MS, 0, 0)


def queue_of(view: FleetView, worker: int, now_us: int = NOW_US) -> float:
    view.refresh(now_us)
    return float(view.queue_ms[worker])


def batches(view: FleetView, now_us: int = NOW_US) -> list[float]:
    view.refresh(now_us)
    assert view.score_inputs.context_tokens is view.context_tokens
    return list(view.context_tokens.tolist())


def standings(view: FleetView, now_us: int) -> list[Standing]:
    view.refresh(now_us)
    return [view.standing_of(worker) for worker in range(len(view))]


class TestReports:
    def test_the_own_region_is_read_as_reported(self) -> None:
        view = make_view()
        view.report(US_0, load("us-0", 100.0), NOW_US)
        view.report(US_0, load("us-0", 40.0), NOW_US + 1)
        assert queue_of(view, US_0) == 40.0

    def test_other_regions_are_averaged_with_weight_w(self) -> None:
        view = make_view()
        view.report(EU_0, load("eu-0", 100.0), NOW_US)
        view.report(EU_0, load("eu-0", 40.0), NOW_US + 1)
        assert queue_of(view, EU_0) == pytest.approx(100.0 + 0.5 * (40.0 - 100.0))

    def test_an_average_does_not_reach_across_a_silence(self) -> None:
        view = make_view()
        view.report(EU_0, load("eu-0", 100.0), NOW_US)
        view.report(EU_0, load("eu-0", 40.0), NOW_US + LEASE_US + 1)
        assert queue_of(view, EU_0) == 40.0

    def test_age_at_the_sender_is_age(self) -> None:
        view = make_view()
        view.report(EU_0, load("eu-0", age_ms=700), NOW_US)
        assert view.age_ms(EU_0, NOW_US + 300 * MS) == 1000.0
        assert standings(view, NOW_US + LEASE_US - 700 * MS)[EU_0] is Standing.KNOWN
        assert standings(view, NOW_US + LEASE_US - 700 * MS + 1)[EU_0] is Standing.UNKNOWN

    def test_a_batch_is_what_was_told_last(self) -> None:
        view = make_view()
        for used in (90_000, 20_000):
            view.report(EU_0, load("eu-0", used_tokens=used), NOW_US)
            assert batches(view)[EU_0] == used
        view.report(EU_0, load("eu-0", used_tokens=5, age_ms=1), NOW_US)
        assert batches(view)[EU_0] == 20_000, "another edge's older reading"
        view.report(EU_0, load("eu-0", used_tokens=20_000, max_tokens=15_000), NOW_US)
        assert batches(view)[EU_0] == 15_000
        view.apply_plan(replace(view.plan, plan_version=2))
        assert batches(view)[EU_0] == 15_000

    def test_a_batch_that_is_not_told_is_taken_for_the_mean_of_the_others(self) -> None:
        view = make_view()
        assert set(batches(view)) == {0.0}
        for worker, used in ((US_0, 90_000), (US_1, 30_000)):
            view.report(worker, load(view.worker_ids[worker], used_tokens=used), NOW_US)
        assert batches(view) == [90_000, 30_000, *4 * [60_000]], "nor is silence idleness here"
        view.report(EU_0, load("eu-0", running=3), NOW_US)
        assert batches(view)[EU_0] == 60_000, "it says nothing of three that run"
        view.report(EU_0, load("eu-0"), NOW_US)
        assert batches(view)[EU_0] == 0
        view.suspect(US_0, NOW_US + SECOND)
        assert batches(view)[US_0] == 90_000, "what it told stands, whatever it failed at"
        assert [view.batch_of(worker, NOW_US) for worker in (US_0, EU_0, EU_0 + 1)] == [90_000, 0, None]
        view.report(US_1, load("us-1", used_tokens=30_000), NOW_US + LEASE_US)
        assert batches(view, NOW_US + LEASE_US + 1) == 6 * [30_000], "a batch ends with its lease"

    def test_the_batch_of_one_that_has_left_is_not_its_successors(self) -> None:
        view = make_view()
        view.report(US_1, load("us-1", used_tokens=80_000), NOW_US)
        view.report(US_0, load("us-0", used_tokens=10_000), NOW_US)
        workers = list(view.plan.workers)
        workers[US_1] = replace(workers[US_1], id="another")
        view.apply_plan(replace(view.plan, plan_version=2, workers=tuple(workers)))
        assert batches(view)[:2] == [10_000, 10_000]

    def test_a_measured_rate_is_used_within_a_band(self) -> None:
        view = make_view()
        for measured, used in ((0.3, 0.3), (0.0, 0.3), (100.0, 0.8), (0.0001, 0.05)):
            view.report(US_0, load("us-0", prefill_ms_per_token=measured), NOW_US)
            assert view.prefill_ms_per_token[US_0] == pytest.approx(used)


class TestStanding:
    def test_silence_is_not_idleness(self) -> None:
        view = make_view()
        assert set(standings(view, NOW_US)) == {Standing.UNKNOWN}
        view.report(US_0, load("us-0", 70.0), NOW_US)
        view.report(EU_0, load("eu-0", 30.0), NOW_US)
        view.refresh(NOW_US)
        assert view.queue_ms.tolist() == [70.0, 70.0, 30.0, 70.0, 70.0, 70.0]
        assert view.state_of(US_1, NOW_US) is WorkerState.UNKNOWN

    def test_a_load_ends_with_its_lease(self) -> None:
        view = make_view()
        view.report(US_0, load("us-0"), NOW_US)
        assert standings(view, NOW_US + LEASE_US)[US_0] is Standing.KNOWN
        assert standings(view, NOW_US + LEASE_US + 1)[US_0] is Standing.UNKNOWN
        view.report(US_0, load("us-0"), NOW_US + LEASE_US + 2)
        assert standings(view, NOW_US + LEASE_US + 2)[US_0] is Standing.KNOWN

    @pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.UNREACHABLE, WorkerState.UNKNOWN])
    def test_only_ready_workers_take_requests(self, state: WorkerState) -> None:
        view = make_view()
        view.report(US_0, load("us-0"), NOW_US)
        assert standings(view, NOW_US)[US_0] is Standing.KNOWN
        view.report(US_0, load("us-0", state=state), NOW_US)
        assert standings(view, NOW_US)[US_0] is Standing.OUT
        view.report(US_0, load("us-0"), NOW_US)
        assert standings(view, NOW_US)[US_0] is Standing.KNOWN

    def test_a_dead_worker_does_not_stay_dead_on_old_news(self) -> None:
        view = make_view()
        view.report(US_0, load("us-0", state=WorkerState.UNREACHABLE), NOW_US)
        assert standings(view, NOW_US + LEASE_US + 1)[US_0] is Standing.UNKNOWN

    def test_suspicion_ends_by_itself(self) -> None:
        view = make_view()
        view.report(US_0, load("us-0"), NOW_US)
        view.suspect(US_0, NOW_US + 10)
        assert standings(view, NOW_US + 9)[US_0] is Standing.SUSPECTED
        assert standings(view, NOW_US + 10)[US_0] is Standing.KNOWN

    def test_a_second_suspicion_does_not_shorten_the_first(self) -> None:
        view = make_view()
        view.report(US_0, load("us-0"), NOW_US)
        view.suspect(US_0, NOW_US + 10)
        view.suspect(US_0, NOW_US + 5)
        assert standings(view, NOW_US + 9)[US_0] is Standing.SUSPECTED

    def test_an_answer_ends_a_suspicion_and_not_what_was_declined(self) -> None:
        view = make_view()
        view.report(US_0, load("us-0"), NOW_US)
        view.suspect(US_0, NOW_US + 20)
        view.declined(US_0, NOW_US + 10)
        view.declined(US_0, NOW_US + 5)
        view.answered(US_0)
        assert standings(view, NOW_US + 9)[US_0] is Standing.SUSPECTED
        assert standings(view, NOW_US + 10)[US_0] is Standing.KNOWN

    def test_suspicion_does_not_outrank_draining(self) -> None:
        view = make_view()
        view.suspect(US_0, NOW_US + SECOND)
        view.report(US_0, load("us-0", state=WorkerState.DRAINING), NOW_US)
        assert standings(view, NOW_US)[US_0] is Standing.OUT

    def test_its_version_grows_exactly_with_its_changes(self) -> None:
        view = make_view()
        view.refresh(NOW_US)
        before = view.standing_version
        view.report(US_0, load("us-0"), NOW_US)
        view.refresh(NOW_US)
        assert view.standing_version == before + 1
        for step in range(1, 50):
            view.report(US_0, load("us-0", float(step)), NOW_US + step * 100 * MS)
            view.refresh(NOW_US + step * 100 * MS)
        assert view.standing_version == before + 1


class TestOwnWork:
    """A report received at t from a round trip 2d away shows what was sent until t - 2d."""

    @pytest.mark.parametrize(
        ("sent_us", "counts"),
        [
            (NOW_US - ROUND_TRIP_US, False),
            (NOW_US - ROUND_TRIP_US + 1, True),
            (NOW_US, True),
        ],
    )
    def test_work_counts_until_a_report_can_show_it(self, sent_us: int, counts: bool) -> None:
        view = make_view()
        view.start("r", flight(EU_0, sent_us, 500))
        view.report(EU_0, load("eu-0", 800.0), NOW_US)
        assert queue_of(view, EU_0) == pytest.approx(1300.0 if counts else 800.0)

    @pytest.mark.parametrize(("live", "queue_ms"), [(False, 1300.0), (True, 800.0)])
    def test_an_aged_report_shows_less_unless_its_sender_kept_it_live(
        self, live: bool, queue_ms: float
    ) -> None:
        view = make_view()
        view.start("r", flight(EU_0, NOW_US - ROUND_TRIP_US - 40 * MS, 500))
        view.report(EU_0, load("eu-0", 800.0, age_ms=50), NOW_US, live=live)
        assert queue_of(view, EU_0) == pytest.approx(queue_ms)

    def test_work_sent_after_a_report_counts_from_then_until_its_first_byte(self) -> None:
        view = make_view()
        view.report(EU_0, load("eu-0", 30.0), NOW_US)
        view.start("r", flight(EU_0, NOW_US + 1, 500))
        assert queue_of(view, EU_0) == pytest.approx(530.0)
        view.first_byte("r", NOW_US + 2)
        assert queue_of(view, EU_0) == pytest.approx(30.0)
        view.end("r", NOW_US + 2)
        assert queue_of(view, EU_0) == pytest.approx(30.0)

    def test_work_of_a_request_that_failed_counts_no_more(self) -> None:
        view = make_view()
        view.start("r", flight(US_0, NOW_US, 500))
        view.end("r", NOW_US + 2)
        assert queue_of(view, US_0) == 0.0

    def test_work_counts_at_its_worker_only_and_for_unknown_ones_too(self) -> None:
        view = make_view()
        view.start("r", flight(EU_0, NOW_US, 500))
        view.refresh(NOW_US)
        assert np.flatnonzero(view.queue_ms).tolist() == [EU_0]

    def test_an_asymmetric_way_counts_both_directions(self) -> None:
        plan = make_plan()
        rows = [list(row) for row in plan.wan_ms]
        rows[0][1], rows[1][0] = 100.0, 20.0
        view = FleetView(replace(plan, wan_ms=tuple(tuple(row) for row in rows)), origin=0)
        view.start("shown", flight(EU_0, NOW_US - 120 * MS, 100))
        view.start("not yet", flight(EU_0, NOW_US - 120 * MS + 1, 10))
        view.report(EU_0, load("eu-0", 800.0), NOW_US)
        assert queue_of(view, EU_0) == pytest.approx(810.0)
        assert view.wan_ms[EU_0] == 100.0


def test_speaking_of_load_loads_no_compiler() -> None:
    """Worker agents import the vocabulary; a sidecar stays small."""
    code = "import sys, kvcompass.roles.messages; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


class TestWanCharge:
    def test_the_way_there_and_back_is_charged(self) -> None:
        plan = make_plan()
        rows = [list(row) for row in plan.wan_ms]
        rows[0][1], rows[1][0] = 100.0, 40.0
        plan = replace(plan, wan_ms=tuple(tuple(row) for row in rows))
        view = FleetView(plan, origin=0)
        assert view.wan_charge_ms[EU_0] == 140.0
        assert view.score_inputs.wan_charge_ms[EU_0] == 140.0

    def test_the_papers_one_way_can_be_chosen(self) -> None:
        plan = make_plan()
        view = FleetView(replace(plan, routing=replace(plan.routing, wan_charge="one_way")), origin=0)
        assert view.score_inputs.wan_charge_ms.tolist() == view.wan_ms.tolist()
