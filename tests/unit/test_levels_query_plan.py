"""First lengths and query plans against the words of the rule."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.levels import clipped_lengths, first_length, ladder, query_plan, registered_lengths
from kvcompass.plan.model import LengthRule, Plan
from tests.models.example_plan import THREE_REGIONS
from tests.models.levels_naive import naive_claims_and_guard, naive_first_length
from tests.models.plan_strategies import plans

PAPER = LengthRule(policy="paper")


@settings(deadline=None, max_examples=25)
@given(plans())
def test_first_length_is_the_shortest_prefix_whose_prefill_covers_the_round_trip(plan: Plan) -> None:
    for o, origin in enumerate(plan.regions):
        for r, region in enumerate(plan.regions):
            assert first_length(plan, o, r) == naive_first_length(plan, origin, region)


@settings(deadline=None, max_examples=25)
@given(plans())
def test_ladder_claims_and_guards_follow_the_rule(plan: Plan) -> None:
    plan = replace(plan, lengths=replace(plan.lengths, policy="ladder"))
    queries = query_plan(plan)
    rungs = list(ladder(plan.lengths, plan.model.context_length))
    assert queries.rungs.tolist() == registered_lengths(plan).tolist() == rungs
    for o in range(len(plan.regions)):
        for r in range(len(plan.regions)):
            claims, guard = naive_claims_and_guard(rungs, first_length(plan, o, r))
            assert queries.rungs[queries.queried[o, r]].tolist() == claims
            assert queries.guard[o, r] == (-1 if guard is None else rungs.index(guard))


@settings(deadline=None, max_examples=25)
@given(plans())
def test_under_the_paper_policy_a_worker_registers_exactly_what_some_edge_queries(plan: Plan) -> None:
    plan = replace(plan, lengths=replace(plan.lengths, policy="paper"))
    queries = query_plan(plan)
    assert queries.rungs.tolist() == registered_lengths(plan).tolist()
    assert queries.queried.any(axis=(0, 1)).all()
    assert (queries.guard == -1).all()
    assert (queries.rungs % plan.lengths.quantum == 0).all()
    assert (queries.rungs < plan.model.context_length).all()


@settings(deadline=None, max_examples=25)
@given(plans(), st.floats(min_value=1.0, max_value=3.0))
def test_a_longer_way_never_adds_a_claim(plan: Plan, factor: float) -> None:
    further = replace(plan, wan_ms=tuple(tuple(ms * factor for ms in row) for row in plan.wan_ms))
    plan = replace(plan, lengths=replace(plan.lengths, policy="ladder"))
    further = replace(further, lengths=plan.lengths)
    assert not (query_plan(further).queried & ~query_plan(plan).queried).any()


def test_three_regions_of_the_paper() -> None:
    # (160 + 160) / 0.073, (126 + 126) / 0.073, (149 + 149) / 0.073
    lengths = [first_length(THREE_REGIONS, o, r) for o, r in ((0, 1), (0, 2), (1, 2))]
    assert lengths == [4_384, 3_453, 4_083]
    queries = query_plan(THREE_REGIONS)
    assert queries.rungs[queries.guard[0, 1]] == 4_096
    assert queries.rungs[queries.queried[0, 1]][0] == 4_608


def test_both_ways_of_an_asymmetric_pair_are_paid() -> None:
    plan = replace(THREE_REGIONS, wan_ms=((0.5, 9.9, 1.0), (63.0, 0.5, 1.0), (1.0, 1.0, 0.5)))
    assert first_length(plan, 0, 1) == first_length(plan, 1, 0) == 999


def test_the_slowest_worker_of_the_pair_decides() -> None:
    slow = [
        replace(worker, prefill_ms_per_token=0.32) if worker.id == "worker-eu-1" else worker
        for worker in THREE_REGIONS.workers
    ]
    plan = replace(THREE_REGIONS, workers=tuple(slow))
    assert first_length(plan, 0, 1) == 1_000
    assert first_length(plan, 0, 2) == first_length(THREE_REGIONS, 0, 2)


def test_the_papers_half_steps_and_doublings() -> None:
    plan = replace(THREE_REGIONS, lengths=replace(PAPER, quantum=16))
    queries = query_plan(plan)
    toward_eu = queries.rungs[queries.queried[0, 1]].tolist()
    assert toward_eu == [4_384, 6_576, 8_768, 10_960, 13_152, 15_344]
    assert queries.rungs[queries.queried[0, 0]].tolist() == [16, 32, 64, 128, 256, 512]


def test_the_ladder_does_not_grow_with_regions_and_the_papers_union_does() -> None:
    one = replace(
        THREE_REGIONS,
        regions=("us",),
        wan_ms=((0.5,),),
        workers=tuple(worker for worker in THREE_REGIONS.workers if worker.region == "us"),
    )
    assert len(registered_lengths(one)) == len(registered_lengths(THREE_REGIONS))
    paper_one, paper_three = (replace(plan, lengths=PAPER) for plan in (one, THREE_REGIONS))
    assert len(registered_lengths(paper_one)) < len(registered_lengths(paper_three))


@pytest.mark.parametrize("policy", ["ladder", "paper"])
def test_pairs_that_the_context_cuts_off_are_reported(policy: str) -> None:
    rule = LengthRule(policy="paper") if policy == "paper" else LengthRule()
    plan = replace(THREE_REGIONS, lengths=rule, model=replace(THREE_REGIONS.model, context_length=4_096))
    unreachable = {(entry.origin, entry.region) for entry in clipped_lengths(plan) if entry.unreachable}
    assert {("us", "eu"), ("eu", "us")} <= unreachable
    queries = query_plan(plan)
    cut_off = {
        (plan.regions[o], plan.regions[r]) for o, r in np.argwhere(~queries.queried.any(axis=2)).tolist()
    }
    assert cut_off == unreachable


def test_nothing_is_reported_when_all_lengths_fit() -> None:
    assert clipped_lengths(THREE_REGIONS) == ()
