"""The edge role places requests and learns from how they end."""

import numpy as np
import pytest

from kvcompass.fleet.in_flight import InFlight
from kvcompass.fleet.load import WorkerState
from kvcompass.fleet.view import Standing
from kvcompass.roles.edge import EdgeRole
from kvcompass.roles.messages import AgentLoad
from kvcompass.routing import Decision, NoWorker, NoWorkerReason, Reason
from kvcompass.tier import Tier
from tests.models.routing_fleets import MS, SECOND, FakeLookup, load, make_plan, matched

EU_0 = 2
KEYS = np.arange(1, 11, dtype=np.uint64)
OTHERS_THAN_0 = frozenset({1, 2, 3, 4, 5})


class Edge:
    """An edge of region us whose every worker has reported."""

    def __init__(self, policy: str = "kvcompass", **plan: object) -> None:
        self.plan = make_plan(**plan)  # type: ignore[arg-type]
        self.lookup = FakeLookup(len(self.plan.workers))
        self.role = EdgeRole(self.plan, "edge-us-0", self.lookup, epoch=1, policy=policy)
        self.now_us = 10 * SECOND
        self.sequence = 0
        self.report()

    def report(self, queue_ms: float = 0.0) -> None:
        self.sequence += 1
        for index, worker in enumerate(self.plan.workers):
            if worker.region == "us":
                message = AgentLoad(None, 1, self.sequence, load(worker.id, queue_ms))
                self.role.on_worker_load(message, self.now_us)
            else:
                self.role.fleet.report(index, load(worker.id, queue_ms), self.now_us)

    def decide(self, tokens: int = 4000, keys: np.ndarray = KEYS, **options: object) -> Decision:
        decision = self.role.decide(tokens, keys, "default", self.now_us, **options)  # type: ignore[arg-type]
        assert isinstance(decision, Decision)
        return decision


def test_a_long_match_elsewhere_beats_recomputing_here() -> None:
    edge = Edge()
    edge.lookup.answer = matched(6, {EU_0: (3840, Tier.VRAM)})
    decision = edge.decide()
    assert (decision.worker_id, decision.region, decision.match_tokens) == ("eu-0", "eu", 3840)
    assert decision.reason is Reason.LONGEST_MATCH_REMOTE
    edge.role.started("r", decision, edge.now_us)
    outcome = edge.role.finished("r", 3840, edge.now_us + SECOND)
    assert outcome is not None
    assert outcome.cross_region_hit
    assert not outcome.wrong_claim
    assert outcome.belief == 1.0


@pytest.mark.parametrize(
    ("reused", "hit", "wrong"), [(3840, True, False), (3839, False, True), (None, False, False)]
)
def test_a_hit_counts_only_when_the_engine_reused_the_claim(
    reused: int | None, hit: bool, wrong: bool
) -> None:
    edge = Edge()
    edge.lookup.answer = matched(6, {EU_0: (3840, Tier.VRAM)})
    edge.role.started("r", edge.decide(), edge.now_us)
    outcome = edge.role.finished("r", reused, edge.now_us)
    assert outcome is not None
    assert (outcome.cross_region_hit, outcome.wrong_claim) == (hit, wrong)
    assert edge.role.cross_region_hits == ({"eu": 1} if hit else {})
    assert edge.role.wrong_claims == ({"eu-0": 1} if wrong else {})
    state = edge.role.state(edge.now_us)
    assert (state["cross_region_hits"], state["wrong_claims"]) == (hit, wrong)
    assert (outcome.belief < 1.0) == wrong


def test_a_remote_claim_no_longer_than_the_local_best_is_no_hit() -> None:
    edge = Edge()
    edge.lookup.answer = matched(6, {0: (3840, Tier.VRAM), EU_0: (3840, Tier.VRAM)})
    decision = edge.decide(exclude=frozenset({1}))
    assert decision.worker == 0
    edge.role.fleet.report(0, load("us-0", 5000.0), edge.now_us)
    decision = edge.decide()
    assert (decision.worker, decision.local_best_match) == (EU_0, 3840)
    edge.role.started("r", decision, edge.now_us)
    outcome = edge.role.finished("r", 3840, edge.now_us)
    assert outcome is not None
    assert not outcome.cross_region_hit


@pytest.mark.parametrize("out", ["unknown", "suspected", "draining", "excluded"])
def test_a_local_holder_that_cannot_be_asked_is_not_beaten(out: str) -> None:
    """The request goes away because of its standing: the far cache is no better than the one here."""
    edge = Edge()
    edge.lookup.answer = matched(6, {0: (3840, Tier.VRAM), EU_0: (3840, Tier.VRAM)})
    match out:
        case "unknown":
            edge.now_us += edge.plan.routing.lease_ms * MS
            edge.role.fleet.report(EU_0, load("eu-0"), edge.now_us)
            edge.now_us += 1
        case "suspected":
            edge.role.fleet.suspect(0, edge.now_us + SECOND)
        case "draining":
            edge.role.fleet.report(0, load("us-0", state=WorkerState.DRAINING), edge.now_us)
    decision = edge.decide(exclude=frozenset({0} if out == "excluded" else ()))
    assert (decision.worker, decision.local_best_match) == (EU_0, 3840)
    edge.role.started("r", decision, edge.now_us)
    outcome = edge.role.finished("r", 3840, edge.now_us)
    assert outcome is not None
    assert not outcome.cross_region_hit


def test_the_local_best_is_that_of_the_group() -> None:
    edge = Edge(groups=("default", "other"))
    edge.lookup.answer = matched(6, {1: (3840, Tier.VRAM), EU_0: (3840, Tier.VRAM)})
    assert edge.plan.workers[1].sharing_group == "other"
    assert edge.decide().local_best_match == 0


def test_ends_are_final_and_idempotent() -> None:
    edge = Edge()
    edge.role.started("r", edge.decide(), edge.now_us)
    edge.role.first_byte("r", edge.now_us)
    assert edge.role.finished("r", 0, edge.now_us) is not None
    assert edge.role.finished("r", 0, edge.now_us) is None
    assert not edge.role.failed("r", edge.now_us)
    assert len(edge.role.fleet.in_flight) == 0


def test_a_repeated_id_ends_the_attempt_before() -> None:
    edge = Edge()
    edge.role.started("r", edge.decide(), edge.now_us)
    edge.role.started("r", edge.decide(), edge.now_us)
    assert len(edge.role.fleet.in_flight) == 1
    assert edge.role.failed("r", edge.now_us)
    assert edge.role.fleet.in_flight.unreported_us.sum() == 0
    assert edge.decide().reason is Reason.NO_MATCH, "nothing of either is expected any more"


def test_a_suspected_worker_is_used_last_until_the_suspicion_ends() -> None:
    edge = Edge()
    first = edge.decide()
    edge.role.started("r", first, edge.now_us)
    edge.role.failed("r", edge.now_us)
    edge.role.fleet.suspect(first.worker, edge.now_us + edge.plan.routing.lease_ms * MS)
    second = edge.decide(exclude=frozenset({first.worker}))
    assert second.worker != first.worker
    assert first.worker not in {edge.decide().worker for _ in range(20)}
    edge.now_us += edge.plan.routing.lease_ms * MS
    edge.report()
    assert first.worker in {edge.decide().worker for _ in range(20)}


def test_an_answer_ends_suspicion() -> None:
    edge = Edge()
    edge.role.fleet.suspect(0, edge.now_us + SECOND)
    assert 0 not in {edge.decide().worker for _ in range(5)}
    decision = edge.decide(exclude=frozenset({1, 2, 3, 4, 5}))
    assert (decision.worker, decision.reason) == (0, Reason.ONLY_SUSPECTED)
    edge.role.started("r", decision, edge.now_us)
    edge.role.first_byte("r", edge.now_us)
    assert 0 in {edge.decide().worker for _ in range(5)}


class TestFirstBytes:
    """What the beginning of an answer says about the worker that was asked."""

    def under_way(self) -> Edge:
        edge = Edge()
        decision = edge.decide(exclude=OTHERS_THAN_0)
        edge.role.started("r", decision, edge.now_us)
        assert self.expected_at_0(edge) > 0
        return edge

    def expected_at_0(self, edge: Edge) -> int:
        return edge.decide(explain=True, exclude=OTHERS_THAN_0).expected_tokens

    def test_the_worker_asked_will_hold_the_prompt(self) -> None:
        edge = self.under_way()
        edge.role.first_byte("r", edge.now_us)
        edge.role.finished("r", 0, edge.now_us)
        assert self.expected_at_0(edge) > 0

    def test_one_that_another_stands_in_for_is_suspected_and_will_not(self) -> None:
        edge = self.under_way()
        edge.role.fleet.suspect(0, edge.now_us + 1)
        edge.role.fleet.suspect(1, edge.now_us + SECOND)
        edge.role.first_byte("r", edge.now_us, worker=1)
        edge.now_us += 2
        edge.role.finished("r", None, edge.now_us)
        assert self.expected_at_0(edge) == 0
        assert edge.role.fleet.standing_of(0) is Standing.SUSPECTED
        assert edge.role.fleet.standing_of(1) is Standing.KNOWN
        assert edge.role.fleet.queue_ms[0] == 0.0
        edge.now_us += edge.plan.routing.lease_ms * MS
        edge.report()
        edge.decide(explain=True)
        assert edge.role.fleet.standing_of(0) is Standing.KNOWN

    def test_an_error_leaves_nothing_behind_but_shows_that_the_worker_lives(self) -> None:
        edge = self.under_way()
        edge.role.fleet.suspect(0, edge.now_us + SECOND)
        edge.role.first_byte("r", edge.now_us, prefilled=False)
        edge.role.finished("r", None, edge.now_us)
        assert self.expected_at_0(edge) == 0
        assert edge.role.fleet.standing_of(0) is Standing.KNOWN

    def test_a_request_that_cannot_be_tracked_is_not_expected(self) -> None:
        """Nothing would ever end it."""
        edge = Edge()
        edge.role.fleet.in_flight = InFlight(6, limit=0)
        edge.role.started("r", edge.decide(), edge.now_us)
        edge.role.first_byte("r", edge.now_us)
        assert edge.role.finished("r", 0, edge.now_us) is None
        assert len(edge.role.expected) == 0


def test_nowhere_to_go_is_a_value() -> None:
    edge = Edge()
    answers = [
        edge.role.decide(100, KEYS[:0], "nobody", edge.now_us),
        edge.role.decide(100, KEYS[:0], "default", edge.now_us, exclude=frozenset(range(6))),
    ]
    assert [answer.reason for answer in answers if isinstance(answer, NoWorker)] == [
        NoWorkerReason.UNKNOWN_GROUP,
        NoWorkerReason.ALL_TRIED,
    ]


def test_a_stand_in_is_of_this_region() -> None:
    edge = Edge()
    decision = edge.role.stand_in(4000, "default", edge.now_us, frozenset({0}))
    assert isinstance(decision, Decision)
    assert decision.worker_id == "us-1"


def test_blind_decisions_are_marked_and_counted_but_explaining_is_not_deciding() -> None:
    edge = Edge()
    assert edge.decide(blind=True, explain=True).blind
    assert edge.role.blind_decisions == 0
    assert edge.decide(blind=True).blind
    assert edge.role.blind_decisions == 1
    assert not edge.decide().blind


def test_explaining_leaves_no_trace_and_says_what_would_be_done() -> None:
    edge = Edge()
    for _ in range(7):
        explained = edge.decide(explain=True)
        assert explained.worker == edge.decide(explain=True).worker
        assert explained.worker == edge.decide().worker
        assert len(explained.candidates) == 6
        assert len(explained.runners_up) == 5


def test_state_is_json_ready_and_says_unknown() -> None:
    import json

    edge = Edge()
    edge.now_us += 10 * SECOND
    state = json.loads(json.dumps(edge.role.state(edge.now_us), allow_nan=False))
    assert {worker["standing"] for worker in state["workers"]} == {"unknown"}
    assert {worker["queue_ms"] for worker in state["workers"]} == {None}
