"""An edge goes from one version of its plan to the next, and goes on knowing what it knew of its workers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.fleet.view import Standing
from kvcompass.index import Matches
from kvcompass.levels.query_plan import query_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.seats import is_vacant, seated
from kvcompass.roles.attempts import Attempt, Failure, Fault
from kvcompass.roles.courses import Courses
from kvcompass.roles.edge import EdgeRole
from kvcompass.routing import Decision, NoWorker
from tests.models.plan_changes import histories, running_plan, successors
from tests.models.routing_fleets import SECOND, FakeLookup, load

KEYS = np.arange(1, 11, dtype=np.uint64)
EDGE = "edge-us-0"
TOKENS = 4_000


class Edge:
    """An edge of region us that goes through versions of its plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lookup = FakeLookup(len(plan.workers))
        self.role = EdgeRole(plan, EDGE, self.lookup, epoch=1)
        self.courses = Courses(plan, self.role, attempts=3, avoid_us=SECOND)
        self.now_us = 10 * SECOND

    def apply(self, plan: Plan) -> None:
        self.plan = plan
        seats = seated(self.role.fleet.plan, plan, self.role.fleet.free_seats())
        self.lookup = FakeLookup(len(seats.workers))
        self.role.apply_plan(seats, query_plan(plan).rungs, self.lookup)
        self.courses.apply_plan(seats)

    def report(self, plan: Plan, queues: dict[str, float]) -> None:
        """Every worker tells its load, after a silence of more than a lease."""
        self.now_us += 10 * SECOND
        for worker in plan.workers:
            self.role.fleet.report(
                self.role.fleet.index_of[worker.id], load(worker.id, queues[worker.id]), self.now_us
            )

    def holds(self, matches: dict[str, int]) -> None:
        fleet = self.role.fleet
        self.lookup.answer = Matches.none(len(fleet))
        for worker_id, tokens in matches.items():
            self.lookup.answer.match_tokens[fleet.index_of[worker_id]] = tokens
            self.lookup.answer.tier[fleet.index_of[worker_id]] = 1

    def decide(self, *, explain: bool = False) -> Decision | NoWorker:
        return self.role.decide(TOKENS, self.keys(), "default", self.now_us, explain=explain)

    def keys(self) -> np.ndarray:
        """As many as the plan has rungs for."""
        return KEYS[: len(query_plan(self.plan).rungs)]


def queues_of(plan: Plan, draw: st.DataObject) -> dict[str, float]:
    """All different, so that no turn decides."""
    given = draw.draw(st.permutations(range(len(plan.workers))))
    return {worker.id: 13.0 * queue for worker, queue in zip(plan.workers, given, strict=True)}


def matches_of(plan: Plan, draw: st.DataObject) -> dict[str, int]:
    held = st.sampled_from((0, 0, 128, 1_024, 3_840))
    return {worker.id: draw.draw(held) for worker in plan.workers}


@settings(deadline=None)
@given(histories(running_plan()), st.data())
def test_an_edge_that_went_through_changes_decides_as_one_that_began_with_the_last(
    plans: list[Plan], data: st.DataObject
):
    aged, fresh = Edge(plans[0]), Edge(plans[-1])
    aged.report(plans[0], queues_of(plans[0], data))
    for plan in plans[1:]:
        aged.apply(plan)
        aged.report(plan, queues_of(plan, data))
    queues, matches = queues_of(plans[-1], data), matches_of(plans[-1], data)
    fresh.now_us = aged.now_us
    decided = []
    for edge in (aged, fresh):
        edge.report(plans[-1], queues)
        edge.holds(matches)
        decision = edge.decide(explain=True)
        if isinstance(decision, NoWorker):
            decided.append((decision, ()))
        else:
            plain = replace_indices(decision)
            decided.append((plain, {replace(each, worker=0) for each in decision.candidates}))
    assert decided[0] == decided[1]


def replace_indices(decision: Decision) -> tuple[object, ...]:
    return (decision.worker_id, decision.region, decision.match_tokens, decision.score_ms, decision.reason)


@settings(deadline=None)
@given(successors(running_plan()), st.data())
def test_what_is_known_of_workers_that_stay_as_they_are_is_kept(plan: Plan, data: st.DataObject):
    first = running_plan()
    edge = Edge(first)
    edge.report(first, queues_of(first, data))
    fleet = edge.role.fleet
    for worker in range(len(first.workers)):
        if data.draw(st.booleans()):
            fleet.beliefs.observe(worker, 100, data.draw(st.integers(0, 100)), edge.now_us)
        if data.draw(st.booleans()):
            fleet.suspect(worker, edge.now_us + data.draw(st.integers(0, 5)) * SECOND)
    for request in range(data.draw(st.integers(0, 6))):
        decision = edge.decide()
        if isinstance(decision, Decision):
            edge.role.started(request, decision, edge.now_us)
    before = {state["worker"]: state for state in edge.role.workers(edge.now_us)}
    edge.apply(plan)
    after = {state["worker"]: state for state in edge.role.workers(edge.now_us)}
    wan = {region: first.wan_ms[0][first.region_index(region)] for region in first.regions}
    for worker in plan.workers:
        same = worker in first.workers and plan.wan_ms[plan.region_index("us")][
            plan.region_index(worker.region)
        ] == wan.get(worker.region)
        if same:
            assert after[worker.id] == before[worker.id]
    stays = {worker.id for worker in plan.workers}
    for state in edge.role.workers(edge.now_us):
        assert state["worker"] in stays or state["requests_in_flight"]


@settings(deadline=None)
@given(histories(running_plan()), st.data())
def test_no_request_goes_to_a_worker_that_has_left_or_is_drained(plans: list[Plan], data: st.DataObject):
    edge = Edge(plans[0])
    for plan in plans:
        if plan is not plans[0]:
            edge.apply(plan)
        if data.draw(st.booleans()):
            edge.report(plan, queues_of(plan, data))
        takes = {worker.id for worker in plan.workers if not worker.drain}
        edge.lookup.answer.match_tokens[:] = 3_840
        excluded: frozenset[int] = frozenset()
        for _ in plan.workers:
            decision = edge.role.decide(TOKENS, KEYS, "default", edge.now_us, exclude=excluded)
            if isinstance(decision, NoWorker):
                break
            assert decision.worker_id in takes
            excluded |= {decision.worker}
        else:
            assert len(excluded) == len(takes)
        assert {edge.role.fleet.worker_ids[worker] for worker in excluded} == takes
        told = edge.role.region_load(edge.now_us).workers
        assert set(told) <= {worker.id for worker in plan.workers}


@settings(deadline=None)
@given(histories(running_plan()), st.data())
def test_requests_under_way_end_as_they_began_whatever_leaves(plans: list[Plan], data: st.DataObject):
    edge = Edge(plans[0])
    started: dict[int, Decision] = {}
    for version, plan in enumerate(plans):
        if version:
            edge.apply(plan)
        edge.report(plan, queues_of(plan, data))
        for each in range(data.draw(st.integers(0, 4))):
            decision = edge.decide()
            if isinstance(decision, Decision):
                started[10 * version + each] = decision
                edge.role.started(10 * version + each, decision, edge.now_us)
    fleet = edge.role.fleet
    for request, decision in started.items():
        assert fleet.worker_ids[decision.worker] == decision.worker_id
        outcome = edge.role.finished(request, 0, edge.now_us)
        assert outcome is not None
        assert outcome.worker == decision.worker
    assert fleet.in_flight.requests.sum() == 0
    assert fleet.in_flight.unreported_us.sum() == 0


def test_a_drained_worker_is_out_though_its_agent_says_ready_or_nothing():
    plan = running_plan()
    edge = Edge(plan)
    drained = replace(plan.workers[0], drain=True)
    edge.apply(replace(plan, workers=(drained, *plan.workers[1:]), plan_version=2))
    edge.role.fleet.refresh(edge.now_us)
    assert edge.role.fleet.standing_of(0) is Standing.OUT
    edge.report(plan, {worker.id: 0.0 for worker in plan.workers})
    edge.role.fleet.refresh(edge.now_us)
    assert edge.role.fleet.standing_of(0) is Standing.OUT
    edge.apply(replace(plan, plan_version=3))
    edge.role.fleet.refresh(edge.now_us)
    assert edge.role.fleet.standing_of(0) is Standing.KNOWN


def test_keys_of_other_lengths_are_not_asked_for():
    plan = running_plan()
    edge = Edge(plan)
    edge.report(plan, {worker.id: 0.0 for worker in plan.workers})
    course = edge.courses.begin(TOKENS, KEYS, "default")
    longer = replace(plan, lengths=replace(plan.lengths, stretch=0.3), plan_version=2)
    edge.apply(longer)
    attempt = course.next(edge.now_us)
    assert isinstance(attempt, Attempt)
    assert attempt.decision is not None
    assert attempt.decision.keys.size == 0
    edge.apply(replace(longer, plan_version=3))
    fresh = edge.courses.begin(TOKENS, KEYS, "default").next(edge.now_us)
    assert isinstance(fresh, Attempt)
    assert fresh.decision is not None
    assert fresh.decision.keys.size == KEYS.size


@pytest.mark.parametrize("failed_before", [False, True])
def test_a_peers_request_for_a_worker_that_has_left_goes_to_a_sibling(failed_before: bool):
    plan = running_plan()
    edge = Edge(plan)
    edge.report(plan, {worker.id: 0.0 for worker in plan.workers})
    course = edge.courses.carry(0, 128, TOKENS, 3)
    if failed_before:
        attempt = course.next(edge.now_us)
        assert isinstance(attempt, Attempt)
        course.start(attempt, edge.now_us)
        course.failed(attempt, Failure(Fault.UNREACHABLE), edge.now_us)
    edge.apply(replace(plan, workers=plan.workers[1:], plan_version=2))
    attempt = course.next(edge.now_us)
    assert isinstance(attempt, Attempt)
    assert attempt.worker_id == "us-1"


def test_a_seat_that_is_given_again_remembers_nothing_and_a_request_for_the_one_before_passes_it_by():
    plan = running_plan()
    edge = Edge(plan)
    edge.report(plan, {worker.id: 50.0 for worker in plan.workers})
    edge.role.fleet.beliefs.observe(0, 100, 0, edge.now_us)
    edge.role.fleet.suspect(0, edge.now_us + 60 * SECOND)
    course = edge.courses.carry(0, 128, TOKENS, 3)
    edge.apply(replace(plan, workers=plan.workers[1:], plan_version=2))
    new = replace(plan.workers[0], id="us-9", slot=9)
    edge.apply(replace(plan, workers=(*plan.workers[1:], new), plan_version=3))
    fleet = edge.role.fleet
    fleet.refresh(edge.now_us)
    assert fleet.index_of["us-9"] == 0
    assert len(fleet) == len(plan.workers)
    assert fleet.beliefs.values[0] == 1.0
    assert fleet.standing_of(0) is Standing.UNKNOWN
    assert fleet.age_ms(0, edge.now_us) is None
    attempt = course.next(edge.now_us)
    assert isinstance(attempt, Attempt)
    assert attempt.worker_id == "us-1"
    assert course.named_id == "us-0"


def test_a_seat_with_a_request_under_way_is_not_given_again():
    plan = running_plan()
    edge = Edge(plan)
    edge.report(plan, {worker.id: 50.0 for worker in plan.workers[1:]} | {"us-0": 0.0})
    decision = edge.decide()
    assert isinstance(decision, Decision)
    assert decision.worker == 0
    edge.role.started("r", decision, edge.now_us)
    edge.apply(replace(plan, workers=plan.workers[1:], plan_version=2))
    new = replace(plan.workers[0], id="us-9", slot=9)
    edge.apply(replace(plan, workers=(*plan.workers[1:], new), plan_version=3))
    assert edge.role.fleet.index_of["us-9"] == len(plan.workers)
    assert edge.role.finished("r", 0, edge.now_us) is not None


def test_an_index_names_seats_and_no_vacant_one():
    plan = running_plan()
    edge = Edge(plan)
    edge.apply(replace(plan, workers=plan.workers[1:], plan_version=2))
    fleet = edge.role.fleet
    assert [is_vacant(worker) for worker in fleet.plan.workers] == [True] + 5 * [False]
    assert "us-0" not in fleet.index_of
