"""Courses: never one worker twice, a budget that siblings share, and blame where it belongs."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.fleet.peer_edges import PeerEdges
from kvcompass.fleet.view import Standing
from kvcompass.roles.attempts import Attempt, Failure, Fault
from kvcompass.roles.courses import Course, Courses
from kvcompass.roles.edge import EdgeRole
from kvcompass.routing import NoWorker
from kvcompass.tier import Tier
from tests.models.routing_fleets import SECOND, FakeLookup, load, make_plan, matched

NOW_US = 10 * SECOND
KEYS = np.arange(1, 11, dtype=np.uint64)
EU_0, EU_1 = 2, 3
AT_EU = {EU_0: (3840, Tier.VRAM)}
LEASE_US = make_plan().routing.lease_ms * 1000


class Edge:
    """An edge of region us that knows every worker's load."""

    def __init__(self, attempts: int = 3, holdings: dict[int, tuple[int, int]] | None = None, **plan: int):
        self.plan = make_plan(**plan)  # type: ignore[arg-type]
        lookup = FakeLookup(len(self.plan.workers))
        lookup.answer = matched(len(self.plan.workers), holdings)
        self.role = EdgeRole(self.plan, "edge-us-0", lookup, epoch=1)
        for index, worker in enumerate(self.plan.workers):
            self.role.fleet.report(index, load(worker.id), NOW_US)
        self.courses = Courses(self.plan, self.role, attempts=attempts, avoid_us=2 * SECOND)

    def begin(self, answer_tokens: float = inf) -> Course:
        return self.courses.begin(4000, KEYS, "default", answer_tokens=answer_tokens)

    def suspected(self, now_us: int = NOW_US) -> set[str]:
        fleet = self.role.fleet
        fleet.refresh(now_us)
        return {fleet.worker_ids[w] for w in range(len(fleet)) if fleet.standing_of(w) is Standing.SUSPECTED}


def take(course: Course, now_us: int = NOW_US) -> Attempt:
    attempt = course.next(now_us)
    assert isinstance(attempt, Attempt)
    course.start(attempt, now_us)
    return attempt


def fail(course: Course, fault: Fault, **details: object) -> Attempt:
    attempt = take(course)
    course.failed(attempt, Failure(fault, **details), NOW_US)  # type: ignore[arg-type]
    return attempt


def test_a_worker_of_another_region_is_reached_through_its_edge_with_all_but_one_try() -> None:
    attempt = take(Edge(holdings=AT_EU).begin())
    assert (attempt.worker_id, attempt.peer, attempt.allowance) == ("eu-0", "edge-eu-0", 2)
    attempt = take(Edge(attempts=1, holdings=AT_EU).begin())
    assert attempt.allowance == 1
    attempt = take(Edge().begin())
    assert (attempt.region, attempt.peer, attempt.allowance) == ("us", "", 1)


faults = st.sampled_from([f for f in Fault if f not in (Fault.OVERSIZED, Fault.CANCELLED)])


@given(
    st.lists(st.tuples(faults, st.integers(1, 9)), min_size=12, max_size=12), st.integers(1, 6), st.booleans()
)
def test_no_worker_is_asked_twice_and_the_budget_holds(
    failures: list[tuple[Fault, int]], attempts: int, far: bool
) -> None:
    edge = Edge(attempts, AT_EU if far else None, workers_a_region=3, edges_a_region=2)
    course = edge.begin()
    asked: list[str] = []
    spent = 0
    for fault, used in failures:
        attempt = course.next(NOW_US)
        if not isinstance(attempt, Attempt):
            break
        asked.append(attempt.worker_id if not attempt.peer else f"{attempt.peer} {attempt.worker_id}")
        assert attempt.allowance <= attempts - spent
        spent += 1 if fault is Fault.UNREACHABLE else min(used, attempt.allowance)
        course.start(attempt, NOW_US)
        course.failed(attempt, Failure(fault, used=used), NOW_US)
    assert len(set(asked)) == len(asked)
    assert spent <= attempts
    assert not isinstance(course.next(NOW_US), Attempt)
    assert len(edge.role.fleet.in_flight) == 0


def test_a_short_answer_goes_where_the_prompt_is_however_large_its_batch() -> None:
    edge = Edge(holdings={0: (2048, Tier.VRAM)})
    edge.role.fleet.report(0, load("us-0", used_tokens=200_000), NOW_US)
    assert take(edge.begin(answer_tokens=1)).worker_id == "us-0"
    assert take(edge.begin()).worker_id == "us-1"


def test_a_region_whose_edge_tried_in_vain_is_left() -> None:
    course = Edge(attempts=5, holdings=AT_EU, edges_a_region=2).begin()
    assert fail(course, Fault.REFUSED, used=2).region == "eu"
    assert take(course).region != "eu"


def test_an_edge_that_cannot_be_reached_gives_way_to_the_next_of_its_region() -> None:
    edge = Edge(attempts=5, holdings=AT_EU, edges_a_region=2)
    course = edge.begin()
    assert fail(course, Fault.UNREACHABLE).peer == "edge-eu-0"
    assert edge.suspected() == set()
    assert take(course).peer == "edge-eu-1"
    assert take(edge.begin()).peer == "edge-eu-1"


def test_a_region_without_a_reachable_edge_cannot_be_reached() -> None:
    edge = Edge(holdings=AT_EU)
    course = edge.begin()
    fail(course, Fault.UNREACHABLE)
    assert edge.suspected() == {"eu-0", "eu-1"}
    assert take(course).region != "eu"


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.SILENT])
def test_a_dead_worker_far_away_costs_its_siblings_nothing(fault: Fault) -> None:
    edge = Edge(holdings=AT_EU)
    fail(edge.begin(), fault)
    assert edge.suspected() == {"eu-0"}
    assert edge.suspected(NOW_US + LEASE_US) == set()
    edge = Edge(holdings=AT_EU)
    fail(edge.begin(), fault, worker=EU_1)
    assert edge.suspected() == {"eu-1"}


@pytest.mark.parametrize("fault", [Fault.UNREACHABLE, Fault.BROKEN, Fault.SILENT, Fault.CUT])
def test_a_worker_of_the_own_region_is_suspected_for_a_lease(fault: Fault) -> None:
    edge = Edge()
    attempt = fail(edge.begin(), fault)
    assert edge.suspected() == {attempt.worker_id}
    assert edge.suspected(NOW_US + LEASE_US) == set()


def test_a_worker_that_refuses_is_left_alone_for_as_long_as_it_says() -> None:
    edge = Edge()
    attempt = fail(edge.begin(), Fault.REFUSED, retry_after_us=SECOND)
    assert edge.suspected(NOW_US + SECOND - 1) == {attempt.worker_id}
    assert edge.suspected(NOW_US + SECOND) == set()


def test_a_worker_that_refuses_is_left_alone_though_it_answers_what_it_has_taken() -> None:
    edge = Edge(holdings={0: (3840, Tier.VRAM)})
    taken, refused = edge.begin(), edge.begin()
    flight = take(taken)
    assert fail(refused, Fault.REFUSED, retry_after_us=5 * SECOND).worker == flight.worker
    taken.first_byte(flight, flight.worker, True, NOW_US)
    assert edge.suspected() == {flight.worker_id}
    assert take(edge.begin()).worker != flight.worker


@pytest.mark.parametrize("holdings", [None, AT_EU])
@pytest.mark.parametrize("fault", [Fault.OVERSIZED, Fault.CANCELLED])
def test_what_is_nobodys_fault_ends_the_course_and_blames_nobody(
    fault: Fault, holdings: dict[int, tuple[int, int]] | None
) -> None:
    edge = Edge(holdings=holdings)
    course = edge.begin()
    fail(course, fault)
    assert course.next(NOW_US) is None
    assert edge.suspected() == set()
    carried = edge.courses.carry(0, 0, 100, 3)
    fail(carried, fault)
    assert carried.next(NOW_US) is None
    assert edge.suspected() == set()


def test_nothing_is_tried_after_the_first_byte() -> None:
    edge = Edge()
    for course in (edge.begin(), edge.courses.carry(0, 0, 100, 3)):
        fail(course, Fault.CUT, begun=True)
        assert course.next(NOW_US) is None


@pytest.mark.parametrize(("worker", "suspected"), [(EU_0, set()), (EU_1, {"eu-0"})])
def test_a_sibling_that_answers_speaks_for_itself(worker: int, suspected: set[str]) -> None:
    edge = Edge(holdings=AT_EU)
    course = edge.begin()
    course.first_byte(take(course), worker, True, NOW_US)
    assert edge.suspected() == suspected


def test_what_a_sibling_reused_is_not_held_against_the_claim() -> None:
    edge = Edge(holdings=AT_EU)
    course = edge.begin()
    attempt = take(course)
    outcome = course.served(attempt, EU_1, 0, NOW_US)
    assert outcome is not None
    assert not outcome.wrong_claim
    attempt = take(course)
    outcome = course.served(attempt, attempt.worker, 0, NOW_US)
    assert outcome is not None
    assert outcome.wrong_claim


def test_a_carried_request_goes_to_the_worker_named_and_then_to_siblings_of_its_group() -> None:
    edge = Edge(attempts=3, workers_a_region=4)
    course = edge.courses.carry(1, claim=50, prompt_tokens=100, attempts=9)
    first = fail(course, Fault.UNREACHABLE)
    assert (first.worker_id, first.peer, first.residual_ms) == ("us-1", "", pytest.approx(0.2 * 50))
    second = fail(course, Fault.BROKEN)
    third = fail(course, Fault.SILENT)
    assert {first.region, second.region, third.region} == {"us"}
    assert len({first.worker, second.worker, third.worker}) == 3
    assert second.residual_ms == pytest.approx(0.2 * 100)
    assert course.used == 3
    assert course.next(NOW_US) is None


def test_the_origin_grants_a_carried_request_its_tries() -> None:
    edge = Edge(attempts=3)
    for granted in (0, 1):
        course = edge.courses.carry(0, 0, 100, granted)
        fail(course, Fault.UNREACHABLE)
        assert course.next(NOW_US) is None


def test_siblings_run_out() -> None:
    course = Edge(attempts=9).courses.carry(0, 0, 100, 9)
    fail(course, Fault.UNREACHABLE)
    fail(course, Fault.UNREACHABLE)
    assert isinstance(course.next(NOW_US), NoWorker)


def test_an_edge_that_failed_is_avoided_for_a_while_and_used_when_there_is_no_other() -> None:
    plan = make_plan(edges_a_region=2)
    peers = PeerEdges(plan, "us", SECOND)
    assert peers.choose("eu", NOW_US) == "edge-eu-0"
    peers.failed("edge-eu-0", NOW_US)
    assert peers.choose("eu", NOW_US + SECOND - 1) == "edge-eu-1"
    assert peers.choose("eu", NOW_US + SECOND) == "edge-eu-0"
    assert peers.choose("eu", NOW_US, frozenset({"edge-eu-1"})) == "edge-eu-0"
    assert peers.any_well("eu", NOW_US)
    peers.failed("edge-eu-1", NOW_US)
    assert not peers.any_well("eu", NOW_US)
    assert peers.choose("us", NOW_US) is None
    assert PeerEdges(replace(plan, edges=()), "us", SECOND).choose("eu", NOW_US) is None
