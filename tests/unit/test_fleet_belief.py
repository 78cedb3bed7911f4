"""Belief: an average of what was reused of what was claimed, and the way back from distrust."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.fleet.belief import RECOVERY_STEP_US, Beliefs

SECOND = 1_000_000


@given(
    st.lists(
        st.tuples(st.integers(1, 10_000), st.integers(0, 20_000), st.integers(0, 5 * SECOND)), max_size=30
    )
)
def test_belief_stays_between_zero_and_one_and_touches_one_worker(events: list[tuple[int, int, int]]) -> None:
    beliefs, now_us = Beliefs(2, 0.2, 60_000), 0
    for claimed, reused, wait_us in events:
        now_us += wait_us
        assert 0.0 <= beliefs.observe(1, claimed, reused, now_us) <= 1.0
    assert beliefs.values[0] == 1.0


def test_an_observation_weighs_as_much_as_the_plan_says() -> None:
    beliefs = Beliefs(1, 0.25, 60_000)
    assert beliefs.observe(0, 1000, 0, 0) == pytest.approx(0.75)
    assert beliefs.observe(0, 1000, 500, 0) == pytest.approx(0.75 + 0.25 * (0.5 - 0.75))


def test_reusing_more_than_claimed_counts_as_reusing_the_claim() -> None:
    beliefs = Beliefs(1, 0.2, 60_000)
    beliefs.observe(0, 1000, 0, 0)
    assert beliefs.observe(0, 1000, 100_000, 0) == pytest.approx(0.8 + 0.2 * 0.2)


def test_disbelief_fades_with_its_time_constant_however_often_it_is_read() -> None:
    often, seldom = Beliefs(1, 1.0, 60_000), Beliefs(1, 1.0, 60_000)
    for beliefs in (often, seldom):
        assert beliefs.observe(0, 1000, 0, 0) == 0.0
    for now_us in range(0, 60 * SECOND + 1, RECOVERY_STEP_US // 3):
        often.recover(now_us)
    often.recover(60 * SECOND + RECOVERY_STEP_US)
    seldom.recover(60 * SECOND + RECOVERY_STEP_US)
    expected = 1.0 - math.exp(-61.0 / 60.0)
    assert often.values[0] == pytest.approx(expected)
    assert seldom.values[0] == pytest.approx(expected)


def test_the_array_the_score_reads_is_written_in_place() -> None:
    beliefs = Beliefs(2, 0.2, 60_000)
    held = beliefs.values
    beliefs.observe(1, 100, 0, 0)
    beliefs.recover(10 * SECOND)
    assert np.shares_memory(held, beliefs.values)
    assert held[1] < 1.0
