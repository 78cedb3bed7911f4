"""The joint score against its naive twin, and the laws it must obey whatever the numbers."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.index import Matches
from kvcompass.plan.model import RoutingRule
from kvcompass.score import JointScore, ScoreInputs, Standings, Weighed
from kvcompass.tier import Tier
from tests.models.score_naive import NaiveWorker, naive_price, naive_score

RULE = RoutingRule()
L = 4096

ms = st.floats(0.0, 20_000.0, allow_subnormal=False)
tokens = st.integers(0, L - 1)
a_worker = st.builds(
    NaiveWorker,
    wan_ms=st.floats(0.0, 300.0),
    queue_ms=ms,
    beta=st.floats(0.01, 2.0),
    gamma=st.floats(0.0, 0.01),
    belief=st.floats(0.0, 1.0),
    match=tokens,
    expected=st.sampled_from((0, 0, 256, 2048)),
    in_dram=st.booleans(),
    is_candidate=st.booleans(),
    is_local=st.booleans(),
    context=st.floats(0.0, 1e6, allow_subnormal=False),
    context_rate=st.floats(0.0, 1e-3, allow_subnormal=False),
)
fleets = st.lists(a_worker, min_size=1, max_size=12).filter(lambda ws: any(w.is_candidate for w in ws))


def weigh(
    workers: list[NaiveWorker], turn: int = 0, answer_tokens: float = inf, rule: RoutingRule = RULE
) -> Weighed:
    def column(name: str, dtype: type = np.float64) -> np.ndarray:
        return np.array([getattr(w, name) for w in workers], dtype)

    inputs = ScoreInputs(
        *(
            column(name)
            for name in ("wan_ms", "queue_ms", "beta", "gamma", "belief", "context_rate", "context")
        )
    )
    candidate = column("is_candidate", np.bool_)
    tier = np.array([Tier.DRAM if w.in_dram else Tier.VRAM for w in workers], np.uint8)
    return JointScore(inputs, rule).weigh(
        Matches(column("match", np.int32), tier),
        column("expected", np.int32),
        Standings(candidate, ~candidate, column("is_local", np.bool_)),
        L,
        turn,
        answer_tokens,
    )


@settings(max_examples=200, deadline=None)
@given(fleets, st.integers(0, 15), st.sampled_from((0, 7, 50, inf)), st.sampled_from((0, 7, 50, 9_000)))
def test_every_term_and_choice_equals_the_naive_twin(
    workers: list[NaiveWorker], turn: int, answer_tokens: float, decode_tokens: int
) -> None:
    rule = replace(RULE, decode_tokens=decode_tokens)
    weighed = weigh(workers, turn, answer_tokens, rule)
    price = naive_price(workers, RULE.queue_scale_ms, RULE.capacity_price_max)
    scores = [naive_score(w, price, L, min(decode_tokens, answer_tokens)) for w in workers]
    assert weighed.capacity_price == pytest.approx(price)
    assert weighed.total_ms.tolist() == pytest.approx(scores)

    candidates = [i for i, w in enumerate(workers) if w.is_candidate]
    least = min(scores[i] for i in candidates)
    assert workers[weighed.worker].is_candidate
    assert scores[weighed.worker] == pytest.approx(least, abs=2e-6)
    assert weighed.longest == max(workers[i].credited for i in candidates)
    assert workers[weighed.holder].credited == weighed.longest
    assert workers[weighed.holder].is_candidate
    holders = [scores[i] for i in candidates if workers[i].credited == weighed.longest]
    assert scores[weighed.holder] == pytest.approx(min(holders))
    others = [w.match for w in workers if not w.is_candidate]
    assert weighed.other_best == max(others, default=0)
    local = [w.match for w in workers if w.is_local]
    assert weighed.local_best == max(local, default=0)


@settings(max_examples=200, deadline=None)
@given(fleets, st.data())
def test_more_queue_never_makes_a_worker_better(workers: list[NaiveWorker], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(workers) - 1))
    longer = [*workers]
    longer[at] = replace(workers[at], queue_ms=workers[at].queue_ms + data.draw(ms))
    assert weigh(longer).total_ms[at] >= weigh(workers).total_ms[at] - 1e-6


@settings(max_examples=200, deadline=None)
@given(fleets, st.data())
def test_a_larger_batch_never_makes_a_worker_better(workers: list[NaiveWorker], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(workers) - 1))
    larger = [*workers]
    larger[at] = replace(workers[at], context=workers[at].context + data.draw(st.floats(0.0, 1e6)))
    assert weigh(larger).total_ms[at] >= weigh(workers).total_ms[at] - 1e-6
    assert weigh(larger, answer_tokens=0).total_ms[at] == weigh(workers, answer_tokens=0).total_ms[at]


@settings(max_examples=200, deadline=None)
@given(fleets, st.data())
def test_a_longer_match_never_makes_a_worker_worse(workers: list[NaiveWorker], data: st.DataObject) -> None:
    """As long as reloading a token costs no more than computing it."""
    at = data.draw(st.integers(0, len(workers) - 1))
    longer = [*workers]
    longer[at] = replace(workers[at], match=data.draw(st.integers(workers[at].match, L - 1)), expected=0)
    before = [*workers]
    before[at] = replace(workers[at], expected=0)
    after = weigh(longer)
    assert after.total_ms[at] <= weigh(before).total_ms[at] + 1e-6


@settings(max_examples=100, deadline=None)
@given(fleets)
def test_without_belief_a_match_is_no_match(workers: list[NaiveWorker]) -> None:
    doubted = [replace(w, belief=0.0) for w in workers]
    unmatched = [replace(w, belief=1.0, match=0, expected=0) for w in workers]
    assert weigh(doubted).total_ms.tolist() == weigh(unmatched).total_ms.tolist()


@settings(max_examples=100, deadline=None)
@given(fleets, st.data())
def test_belief_and_vram_never_hurt(workers: list[NaiveWorker], data: st.DataObject) -> None:
    more = [replace(w, belief=data.draw(st.floats(w.belief, 1.0)), in_dram=False) for w in workers]
    assert (weigh(more).total_ms <= weigh(workers).total_ms + 1e-6).all()


@settings(max_examples=100, deadline=None)
@given(fleets)
def test_the_price_lies_between_zero_and_its_maximum(workers: list[NaiveWorker]) -> None:
    weighed = weigh(workers)
    assert 0.0 <= weighed.capacity_price <= RULE.capacity_price_max
    idle = [*workers, replace(workers[0], queue_ms=0.0, is_candidate=True)]
    assert weigh(idle).capacity_price == 0.0


def test_ties_go_to_whoever_s_turn_it_is() -> None:
    equal = NaiveWorker(0.5, 0.0, 0.2, 0.01, 1.0, 0, 0, False, True, True)
    workers = [equal, replace(equal, is_candidate=False), equal, replace(equal, wan_ms=0.6), equal]
    assert [weigh(workers, turn).worker for turn in range(6)] == [0, 2, 2, 4, 4, 0]


def test_under_saturation_the_holder_wins_what_it_loses_when_idle() -> None:
    """The price of capacity, the paper's point: far holder against idle or busy recomputation here."""
    here = NaiveWorker(0.5, 0.0, 0.2, 0.01, 1.0, 0, 0, False, True, True)
    there = NaiveWorker(160.0, 0.0, 0.2, 0.01, 1.0, 700, 0, False, True, False)
    assert weigh([here, there]).worker == 0
    busy = 2_000.0
    assert weigh([replace(here, queue_ms=busy), replace(there, queue_ms=busy)]).worker == 1


def test_short_prompts_spread_over_batches_unless_they_want_no_answer() -> None:
    """What a full pool of an A100 adds to a step is 16 ms; some tens of them are worth a short way."""
    near = NaiveWorker(
        0.5, 0.0, 0.067, 0.00524, 1.0, 0, 0, False, True, True, context=240_000.0, context_rate=6.55e-5
    )
    far = replace(near, wan_ms=160.0, context=10_000.0, is_local=False)
    assert weigh([near, far]).worker == 1
    assert weigh([near, far], answer_tokens=1).worker == 0
    assert weigh([near, far]).decode_ms[0] == pytest.approx(RULE.decode_tokens * 15.72)
