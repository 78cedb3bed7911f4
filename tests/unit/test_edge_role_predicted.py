"""An edge and a worker whose engine sends no events: credited by what was sent there, and said so."""

from dataclasses import replace

import numpy as np

from kvcompass.fleet.load import WorkerState
from kvcompass.plan.model import Plan
from kvcompass.plan.seats import seated
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.messages import AgentLoad
from kvcompass.routing import Decision, Reason
from tests.models.routing_fleets import SECOND, FakeLookup, load, make_plan

US_0, US_1 = 0, 1
TTL_S = 60
KEYS = np.arange(1, 11, dtype=np.uint64)


def predicted_plan() -> Plan:
    """`us-0` sends no events; the others do."""
    plan = make_plan()
    return replace(plan, workers=(replace(plan.workers[US_0], holdings="predicted"), *plan.workers[1:]))


class Edge:
    """An edge of region us whose own workers have reported."""

    def __init__(self) -> None:
        self.plan = predicted_plan()
        self.role = EdgeRole(self.plan, "edge-us-0", FakeLookup(len(self.plan.workers)), epoch=1)
        self.now_us = SECOND
        self.sequence = 0

    def report(self, worker: int, state: WorkerState = WorkerState.READY) -> None:
        self.sequence += 1
        told = load(self.plan.workers[worker].id, 0.0)._replace(state=state)
        self.role.on_worker_load(AgentLoad(None, 1, self.sequence, told), self.now_us)

    def decide(self, **options: object) -> Decision:
        self.report(US_0)
        self.report(US_1)
        decision = self.role.decide(4_000, KEYS, "default", self.now_us, **options)  # type: ignore[arg-type]
        assert isinstance(decision, Decision)
        return decision

    def serve(self, cached: int | None = 0, exclude: frozenset[int] = frozenset()) -> Decision:
        """One request from its start to its end; a second passes."""
        decision = self.decide(exclude=exclude)
        self.role.started("r", decision, self.now_us)
        self.now_us += SECOND
        self.role.first_byte("r", self.now_us)
        self.outcome = self.role.finished("r", cached, self.now_us)
        return decision


ALL_BUT_US_0 = frozenset({1, 2, 3, 4, 5})


def test_who_was_sent_there_comes_back_for_as_long_as_the_plan_says() -> None:
    edge = Edge()
    edge.serve(exclude=ALL_BUT_US_0)
    edge.now_us += 30 * SECOND
    decision = edge.decide()
    assert (decision.worker, decision.reason) == (US_0, Reason.APPROXIMATE_MATCH)
    assert (decision.match_tokens, decision.expected_tokens) == (0, int(edge.role._rungs[len(KEYS) - 1]))
    edge.now_us += TTL_S * SECOND
    assert edge.decide().reason is Reason.NO_MATCH


def test_it_is_marked_wherever_the_worker_is_shown() -> None:
    edge = Edge()
    edge.serve(exclude=ALL_BUT_US_0)
    candidates = {each.worker: each for each in edge.decide(explain=True).candidates}
    assert {worker for worker, each in candidates.items() if each.approximate} == {US_0}
    told = {each["worker"]: each for each in edge.role.workers(edge.now_us)}
    assert (told["us-0"]["approximate"], told["us-0"]["predicted_keys"]) == (True, len(KEYS))
    assert (told["us-1"]["approximate"], told["us-1"]["predicted_keys"]) == (False, 0)


def test_a_wrong_prediction_is_no_wrong_claim_and_costs_belief() -> None:
    edge = Edge()
    edge.serve(exclude=ALL_BUT_US_0)
    assert edge.outcome is not None
    assert (edge.outcome.belief, edge.outcome.wrong_prediction) == (1.0, False), "nothing was predicted yet"
    edge.serve(cached=0)
    assert (edge.outcome.wrong_claim, edge.outcome.wrong_prediction) == (False, True)
    assert edge.outcome.belief < 1.0
    assert (edge.role.wrong_claims, edge.role.wrong_predictions) == ({}, {"us-0": 1})
    assert edge.role.state(edge.now_us)["wrong_predictions"] == 1
    lower = edge.outcome.belief
    edge.serve(cached=4_000)
    assert edge.outcome.belief > lower


def test_siblings_under_way_do_not_judge_the_prediction() -> None:
    """The second reuses nothing, for the first is still being computed: that says nothing of what is kept."""
    edge = Edge()
    for name in ("first", "second"):
        edge.role.started(name, edge.decide(exclude=ALL_BUT_US_0), edge.now_us)
    outcome = edge.role.finished("second", 0, edge.now_us)
    assert outcome is not None and (outcome.belief, outcome.wrong_prediction) == (1.0, False)


def test_an_engine_that_was_gone_holds_nothing() -> None:
    edge = Edge()
    edge.serve(exclude=ALL_BUT_US_0)
    edge.report(US_0, WorkerState.UNREACHABLE)
    assert edge.decide().reason is Reason.NO_MATCH


def test_the_next_version_of_the_plan_changes_the_time_and_forgets_who_left() -> None:
    edge = Edge()
    edge.serve(exclude=ALL_BUT_US_0)
    rungs = edge.role._rungs
    shorter = replace(edge.plan, routing=replace(edge.plan.routing, predicted_ttl_ms=5_000), plan_version=2)
    edge.role.apply_plan(shorter, rungs, FakeLookup(len(shorter.workers)))
    assert edge.decide().reason is Reason.APPROXIMATE_MATCH
    without = replace(shorter, workers=shorter.workers[1:], plan_version=3)
    plan = seated(shorter, without)
    edge.role.apply_plan(plan, rungs, FakeLookup(len(plan.workers)))
    assert edge.role.expected.predicted_keys(US_0) == 0
