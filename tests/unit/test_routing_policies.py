"""Policies: who may be chosen, in whose turn, and the reason that is given."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.fleet import WorkerState
from kvcompass.fleet.view import FleetView
from kvcompass.routing import (
    POLICIES,
    Decision,
    NoWorker,
    NoWorkerReason,
    Policy,
    Reason,
    RoutingRequest,
    make_policy,
)
from kvcompass.tier import Tier
from tests.models.routing_fleets import SECOND, load, make_plan, matched

NOW_US = 100 * SECOND
US_0, US_1, EU_0, EU_1 = 0, 1, 2, 3
NO_KEYS = np.zeros(0, np.uint64)


def make_fleet(
    queues: dict[str, float] | None = None, *, groups: tuple[str, ...] = ("default",)
) -> FleetView:
    """A view from `us` in which every worker has reported; six workers, two a region."""
    fleet = FleetView(make_plan(groups=groups), origin=0)
    for index, worker_id in enumerate(fleet.worker_ids):
        fleet.report(index, load(worker_id, (queues or {}).get(worker_id, 0.0)), NOW_US)
    return fleet


def ask(policy: Policy, holdings: dict[int, tuple[int, int]] | None = None, **options: object) -> Decision:
    explain = bool(options.pop("explain", False))
    answer = policy.decide(a_request(holdings, **options), NOW_US, explain=explain)
    assert isinstance(answer, Decision)
    return answer


def a_request(holdings: dict[int, tuple[int, int]] | None = None, **options: object) -> RoutingRequest:
    fields: dict[str, object] = {"prompt_tokens": 4096, "sharing_group": "default", "keys": NO_KEYS}
    return RoutingRequest(**{**fields, "matches": matched(6, holdings), **options})  # type: ignore[arg-type]


class TestTurns:
    def test_misses_do_not_herd(self) -> None:
        """Idle and equal workers of the own region share the misses, whoever is numbered first."""
        policy = make_policy("kvcompass", make_fleet())
        chosen = [ask(policy).worker for _ in range(10)]
        assert chosen == [US_0, US_1] * 5

    def test_edges_that_start_elsewhere_do_not_move_together(self) -> None:
        first = {ask(make_policy("kvcompass", make_fleet(), start)).worker for start in range(2)}
        assert first == {US_0, US_1}

    def test_round_robin_goes_around_the_world(self) -> None:
        policy = make_policy("round_robin", make_fleet())
        chosen = [ask(policy, {US_0: (2048, Tier.VRAM)}) for _ in range(12)]
        assert [decision.worker for decision in chosen] == [*range(6), *range(6)]
        assert {decision.reason for decision in chosen} == {Reason.ROUND_ROBIN}
        assert [decision.match_tokens for decision in chosen[:2]] == [2048, 0], "the claim is still on record"

    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_the_same_questions_get_the_same_answers(self, name: str) -> None:
        one, other = (make_policy(name, make_fleet()) for _ in range(2))
        holdings = {EU_0: (3000, int(Tier.VRAM))}
        for answer in (None, holdings, None, holdings, holdings):
            assert ask(one, answer) == ask(other, answer)


class TestReach:
    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_only_workers_of_the_sharing_group(self, name: str) -> None:
        fleet = make_fleet(groups=("red", "blue"))
        policy = make_policy(name, fleet)
        everything = {worker: (4000, int(Tier.VRAM)) for worker in range(6)}
        for group, ids in (("red", {"us-0", "eu-0", "asia-0"}), ("blue", {"us-1", "eu-1", "asia-1"})):
            chosen = {ask(policy, everything, sharing_group=group).worker_id for _ in range(12)}
            assert chosen <= ids
        answer = policy.decide(a_request(sharing_group="green"), NOW_US)
        assert isinstance(answer, NoWorker)
        assert answer.reason is NoWorkerReason.UNKNOWN_GROUP

    def test_a_region_alone_never_looks_abroad(self) -> None:
        policy = make_policy("regional", make_fleet({"us-0": 9000.0, "us-1": 9000.0}))
        decision = ask(policy, {EU_0: (4000, Tier.VRAM)})
        assert decision.region == "us"
        assert decision.reason is Reason.NO_MATCH
        assert decision.capacity_price == 8.0, "nor does it know of spare capacity there"

    @settings(max_examples=40, deadline=None)
    @given(st.sets(st.integers(0, 5)), st.sampled_from(sorted(POLICIES)))
    def test_the_excluded_are_never_chosen(self, exclude: set[int], name: str) -> None:
        policy = make_policy(name, make_fleet())
        answer = policy.decide(a_request(exclude=frozenset(exclude)), NOW_US)
        reach = {0, 1} if name == "regional" else set(range(6))
        if reach <= exclude:
            assert isinstance(answer, NoWorker)
            assert answer.reason is NoWorkerReason.ALL_TRIED
        else:
            assert isinstance(answer, Decision)
            assert answer.worker in reach - exclude

    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_draining_and_dead_workers_are_never_chosen(self, name: str) -> None:
        fleet = make_fleet()
        policy = make_policy(name, fleet)
        fleet.report(US_0, load("us-0", state=WorkerState.DRAINING), NOW_US)
        assert US_0 not in {ask(policy, {US_0: (4000, Tier.VRAM)}).worker for _ in range(12)}
        for worker, worker_id in enumerate(fleet.worker_ids):
            fleet.report(worker, load(worker_id, state=WorkerState.UNREACHABLE), NOW_US)
        answer = policy.decide(a_request(), NOW_US)
        assert isinstance(answer, NoWorker)
        assert answer.reason is NoWorkerReason.NONE_LIVE

    def test_a_worker_of_unknown_load_is_used_last(self) -> None:
        fleet = FleetView(make_plan(), origin=0)
        policy = make_policy("kvcompass", fleet)
        assert ask(policy).reason is Reason.ONLY_UNKNOWN_LOAD
        fleet.report(EU_0, load("eu-0", 5000.0), NOW_US)
        decision = ask(policy, {US_0: (4000, Tier.VRAM)})
        assert (decision.worker, decision.reason) == (EU_0, Reason.ONLY_CANDIDATE)


class TestReasons:
    def test_no_match_anywhere(self) -> None:
        assert ask(make_policy("kvcompass", make_fleet())).reason is Reason.NO_MATCH

    @pytest.mark.parametrize("held_here", [0, 512])
    def test_the_holder_cannot_be_asked(self, held_here: int) -> None:
        fleet = make_fleet()
        fleet.report(EU_0, load("eu-0", state=WorkerState.DRAINING), NOW_US)
        holdings = {EU_0: (3968, Tier.VRAM), US_0: (held_here, Tier.VRAM)}
        decision = ask(make_policy("kvcompass", fleet), holdings)
        assert (decision.worker, decision.reason) == (US_0, Reason.HOLDER_UNAVAILABLE)

    def test_the_holder_has_failed_this_request(self) -> None:
        policy = make_policy("kvcompass", make_fleet())
        decision = ask(policy, {EU_0: (3968, Tier.VRAM)}, exclude=frozenset({EU_0}))
        assert decision.reason is Reason.HOLDER_UNAVAILABLE

    def test_a_holder_out_of_reach_is_none(self) -> None:
        """`regional` answers for its region alone, and a group for its own workers."""
        policy = make_policy("regional", make_fleet())
        assert ask(policy, {EU_0: (3968, Tier.VRAM)}).reason is Reason.NO_MATCH
        policy = make_policy("kvcompass", make_fleet(groups=("default", "other")))
        assert ask(policy, {EU_1: (3968, Tier.VRAM)}).reason is Reason.NO_MATCH

    def test_longest_match_here(self) -> None:
        decision = ask(
            make_policy("kvcompass", make_fleet()), {US_1: (2048, Tier.VRAM), EU_0: (2048, Tier.VRAM)}
        )
        assert (decision.worker, decision.reason) == (US_1, Reason.LONGEST_MATCH_LOCAL)
        assert decision.local_best_match == 2048

    def test_longest_match_abroad(self) -> None:
        decision = ask(make_policy("kvcompass", make_fleet()), {EU_1: (3968, Tier.VRAM)})
        assert (decision.worker, decision.reason) == (EU_1, Reason.LONGEST_MATCH_REMOTE)
        assert decision.local_best_match == 0

    def test_the_holder_is_too_busy(self) -> None:
        policy = make_policy("kvcompass", make_fleet({"us-0": 3000.0}))
        decision = ask(policy, {US_0: (2048, Tier.VRAM)})
        assert (decision.worker, decision.reason) == (US_1, Reason.LESS_LOADED)

    def test_the_holder_decodes_too_much(self) -> None:
        fleet = make_fleet()
        fleet.report(US_0, load("us-0", used_tokens=200_000), NOW_US)
        policy = make_policy("kvcompass", fleet)
        decision = ask(policy, {US_0: (2048, Tier.VRAM)})
        assert (decision.worker, decision.reason) == (US_1, Reason.LESS_LOADED)
        decision = ask(policy, {US_0: (2048, Tier.VRAM)}, answer_tokens=1)
        assert (decision.worker, decision.reason) == (US_0, Reason.LONGEST_MATCH_LOCAL)

    def test_the_holder_is_too_far(self) -> None:
        decision = ask(
            make_policy("kvcompass", make_fleet()), {EU_0: (600, Tier.VRAM), US_1: (512, Tier.VRAM)}
        )
        assert (decision.worker, decision.reason) == (US_1, Reason.NEARER)

    def test_the_holder_has_to_reload(self) -> None:
        decision = ask(
            make_policy("kvcompass", make_fleet()), {US_0: (2049, Tier.DRAM), US_1: (2048, Tier.VRAM)}
        )
        assert (decision.worker, decision.reason) == (US_1, Reason.CHEAPER)

    def test_a_match_that_a_request_under_way_will_leave(self) -> None:
        expected = np.array([0, 3968, 0, 0, 0, 0], np.int32)
        decision = ask(make_policy("kvcompass", make_fleet()), expected_tokens=expected)
        assert (decision.worker, decision.reason) == (US_1, Reason.EXPECTED_MATCH)
        assert (decision.match_tokens, decision.expected_tokens) == (0, 3968), "expected is not claimed"
        assert decision.residual_ms == pytest.approx(0.2 * (4096 - 3968))


class TestExplanation:
    @pytest.mark.parametrize("name", sorted(POLICIES))
    def test_terms_add_up_and_the_least_is_first(self, name: str) -> None:
        queues = {"us-0": 900.0, "us-1": 1000.0, "eu-0": 40.0, "asia-1": 7.0}
        fleet = make_fleet(queues)
        fleet.report(EU_1, load("eu-1", used_tokens=70_000), NOW_US)
        policy = make_policy(name, fleet)
        decision = ask(policy, {US_0: (2048, Tier.DRAM), EU_0: (3072, Tier.VRAM)}, explain=True)
        assert len(decision.candidates) == 6
        for seen in decision.candidates:
            terms = seen.wan_charge_ms + seen.queue_ms + seen.recompute_ms + seen.reload_ms + seen.decode_ms
            assert seen.score_ms == pytest.approx(terms)
            assert (seen.decode_ms > 0.0) == (seen.worker == EU_1)
        eligible = [seen for seen in decision.candidates if seen.is_candidate]
        assert [c.score_ms for c in eligible] == sorted(c.score_ms for c in eligible)
        assert decision.candidates[: len(eligible)] == tuple(eligible)
        chosen = next(c for c in eligible if c.worker == decision.worker)
        assert chosen.score_ms == pytest.approx(decision.score_ms)
        if name != "round_robin":
            assert chosen == eligible[0]
        assert decision.worker not in {c.worker for c in decision.runners_up}
        assert len(decision.runners_up) == len(eligible) - 1

    def test_who_was_out_is_listed_as_out(self) -> None:
        fleet = make_fleet(groups=("default", "other"))
        fleet.report(EU_0, load("eu-0", state=WorkerState.DRAINING), NOW_US)
        decision = ask(make_policy("kvcompass", fleet), explain=True)
        assert {c.worker_id for c in decision.candidates if c.is_candidate} == {"us-0", "asia-0"}
        assert next(c for c in decision.candidates if c.worker == EU_0).standing.name == "OUT"
