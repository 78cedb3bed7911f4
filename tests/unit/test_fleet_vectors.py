"""Queue vectors into a view and out of it, against a twin that takes one report at a time."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.fleet.in_flight import Flight
from kvcompass.fleet.load import RegionLoad, WorkerLoad, WorkerState
from kvcompass.fleet.region_workers import STRANGER, RegionWorkers
from kvcompass.fleet.view import FleetView, Standing
from tests.models.fleet_naive import NaiveReports, Own
from tests.models.routing_fleets import MS, SECOND, load, loads_of, make_plan, region_load

PLAN = make_plan(3)
LEASE_US = PLAN.routing.lease_ms * MS
IDS = tuple(worker.id for worker in PLAN.workers)

loads = st.builds(
    WorkerLoad,
    st.sampled_from((*IDS, "nobody")),
    st.sampled_from((WorkerState.READY, WorkerState.READY, WorkerState.DRAINING)),
    st.floats(0.0, 5000.0),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.sampled_from((0.0, 0.01, 0.1, 0.3, 9.0)),
    st.sampled_from((0, 1, 90, LEASE_US // MS, LEASE_US // MS + 1)),
)
sent = st.tuples(st.integers(0, len(IDS) - 1), st.integers(0, 900 * MS))
steps = st.tuples(
    st.sampled_from((1, 40 * MS, 320 * MS, LEASE_US)),
    st.lists(sent, max_size=4),
    st.lists(loads, max_size=8),
    st.booleans(),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=1, max_size=12))
def test_a_vector_is_its_reports_one_after_the_other(
    history: list[tuple[int, list[tuple[int, int]], list[WorkerLoad], bool]],
) -> None:
    view = FleetView(PLAN, origin=0)
    twins = [
        NaiveReports(
            bool(view.is_local[i]),
            round(2000 * float(view.wan_ms[i])),
            PLAN.routing.ewma_weight,
            LEASE_US,
            worker.prefill_ms_per_token,
            worker.prefill_ms_per_token,
        )
        for i, worker in enumerate(PLAN.workers)
    ]
    now_us, requests = 100 * SECOND, 0
    for wait_us, starts, told, live in history:
        now_us += wait_us
        for worker, work_us in starts:
            view.start(requests, Flight(worker, now_us, work_us, 0, 0))
            twins[worker].unreported.append(Own(now_us, work_us))
            requests += 1
        message = region_load("edge", "eu", 1, 1, told)
        assert loads_of(message) == tuple(told)
        places = [view.index_of.get(worker_id, STRANGER) for worker_id in message.workers]
        view.report_all(np.array(places, np.int64), message.rows, now_us, live=live)
        for place, each in zip(places, told, strict=True):
            if place != STRANGER:
                twins[place].report(each, now_us, live=live)
        assert view._reported_ms.tolist() == [twin.believed_ms for twin in twins]
        assert view.prefill_ms_per_token.tolist() == [twin.rate for twin in twins]
        refreshed = deepcopy(view)
        refreshed.refresh(now_us)
        tells = [
            twin.load is not None and now_us - twin.learned_us <= LEASE_US and twin.told_tokens >= 0
            for twin in twins
        ]
        told = [twin.told_tokens for tell, twin in zip(tells, twins, strict=True) if tell]
        mean = sum(told) / len(told) if told else 0.0
        expected = [twin.told_tokens if tell else mean for tell, twin in zip(tells, twins, strict=True)]
        assert refreshed.context_tokens.tolist() == pytest.approx(expected)
        unreported_us = [sum(own.work_us for own in twin.unreported) for twin in twins]
        assert view.in_flight.unreported_us.tolist() == unreported_us
        for worker, twin in enumerate(twins):
            known = twin.load is not None and now_us - twin.learned_us <= LEASE_US
            assert view.load_of(worker, now_us) == (twin.load if known else None)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), loads, st.integers(0, 5)), max_size=8), st.integers(0, 2))
def test_what_is_told_is_what_is_known_of_the_own_region(
    reports: list[tuple[int, WorkerLoad, int]], origin: int
) -> None:
    """Every field as reported, but for the queue, which is the present one, and the age."""
    view = FleetView(PLAN, origin)
    now_us = 100 * SECOND
    own = [i for i in range(len(IDS)) if view.is_local[i]]
    for i, report, seconds in reports:
        now_us += seconds * SECOND
        view.report(own[i], report, now_us)
    view.start("r", Flight(own[0], now_us, 300 * MS, 0, 0))
    view.refresh(now_us)
    worker_ids, rows = view.told(now_us)
    expected = []
    for worker in own:
        known = view.load_of(worker, now_us)
        if known is not None:
            age_ms = view.age_ms(worker, now_us)
            assert age_ms is not None
            queue_ms = float(view.queue_ms[worker])
            expected.append(known._replace(worker_id=IDS[worker], queue_ms=queue_ms, age_ms=round(age_ms)))
    assert loads_of(RegionLoad("edge", "us", 1, 1, worker_ids, rows)) == tuple(expected)


def test_what_was_told_stays_as_it_was() -> None:
    """A message on its way is not changed by what is heard meanwhile."""
    view = FleetView(PLAN, origin=0)
    for worker, worker_id in enumerate(IDS[:3]):
        view.report(worker, load(worker_id, 10.0), SECOND)
    view.refresh(SECOND)
    _, rows = view.told(SECOND)
    before = rows.tolist()
    view.report(0, load(IDS[0], 99.0), SECOND)
    view.refresh(SECOND)
    view.told(SECOND)
    assert rows.tolist() == before


@pytest.mark.parametrize("live", [True, False])
def test_a_vector_has_standing_judged_anew_when_it_changes(live: bool) -> None:
    view = FleetView(PLAN, origin=0)
    places = np.array([3, 4], np.int64)
    for state, standing in ((WorkerState.READY, Standing.KNOWN), (WorkerState.DRAINING, Standing.OUT)):
        message = region_load("edge", "eu", 1, 1, (load("eu-0"), load("eu-1", state=state)))
        view.report_all(places, message.rows, SECOND, live=live)
        view.refresh(SECOND)
        assert view.standing_of(4) is standing


class TestRegionWorkers:
    @pytest.mark.parametrize(
        ("worker_ids", "places"),
        [
            ((), []),
            (("eu-0", "eu-1", "eu-2"), [3, 4, 5]),
            (("eu-2", "eu-0"), [5, 3]),
            (("eu-1", "us-1", "nobody", "eu-1"), [4, STRANGER, STRANGER, 4]),
        ],
    )
    def test_they_are_found_whatever_was_asked_before(
        self, worker_ids: tuple[str, ...], places: list[int]
    ) -> None:
        workers = RegionWorkers(PLAN)
        for before in (("eu-0",), ("eu-0", "eu-1", "eu-2"), worker_ids):
            workers.find("eu", before)
            found, strangers = workers.find("eu", worker_ids)
            assert (found.tolist(), strangers) == (places, places.count(STRANGER))
        assert workers.find("us", ("us-1",))[0].tolist() == [1]
