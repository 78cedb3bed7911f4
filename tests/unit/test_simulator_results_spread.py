"""Student's intervals over seeds."""

import math
from statistics import NormalDist, fmean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.results.spread import CONFIDENCE, Spread, student_t

FIGURES = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=2, max_size=8)


@settings(deadline=None)
@given(st.floats(0.01, 0.99))
def test_students_quantiles_of_one_and_two_degrees_have_closed_forms(confidence: float) -> None:
    one = math.tan(math.pi / 2 * confidence)
    assert student_t(1, confidence) == pytest.approx(one, rel=1e-7)
    two = confidence * math.sqrt(2 / (1 - confidence**2))
    assert student_t(2, confidence) == pytest.approx(two, rel=1e-7)


def test_students_quantile_falls_toward_the_normal_one() -> None:
    found = [student_t(freedom) for freedom in (1, 2, 3, 5, 10, 100, 1_000)]
    normal = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    assert found == sorted(found, reverse=True)
    assert found[-1] > normal
    assert found[-1] == pytest.approx(normal, rel=2e-3)


@settings(deadline=None)
@given(FIGURES)
def test_the_value_is_the_mean_and_the_interval_lies_around_it(values: list[float]) -> None:
    spread = Spread.of(values)
    assert spread is not None
    assert spread.low is not None
    assert spread.high is not None
    assert spread.seeds == len(values)
    assert spread.value == pytest.approx(fmean(values), abs=1e-9)
    assert (spread.low + spread.high) / 2 == pytest.approx(fmean(values), abs=1e-3)
    assert spread.low <= spread.high


@settings(deadline=None)
@given(FIGURES, st.integers(-1_000, 1_000), st.integers(1, 100))
def test_the_interval_moves_and_stretches_with_its_values(
    values: list[float], shift: int, stretch: int
) -> None:
    before, after = Spread.of(values), Spread.of([shift + stretch * value for value in values])
    assert before is not None
    assert after is not None
    assert before.low is not None
    assert after.low is not None
    assert after.low == pytest.approx(shift + stretch * before.low, abs=1.0, rel=1e-6)


def test_nineteen_of_twenty_intervals_hold_the_mean() -> None:
    stream = np.random.Generator(np.random.PCG64(7))
    rounds, held = 4_000, 0
    for _ in range(rounds):
        spread = Spread.of(stream.normal(3.0, 2.0, size=3).tolist())
        assert spread is not None
        assert spread.low is not None
        assert spread.high is not None
        held += spread.low <= 3.0 <= spread.high
    # Four standard deviations of a binomial share.
    assert abs(held / rounds - CONFIDENCE) < 4 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / rounds)


def test_one_seed_says_nothing_of_the_spread_and_none_says_nothing() -> None:
    assert Spread.of([4.0, None]) == Spread(4.0, None, None, 1)
    assert Spread.of([None, None]) is None
