"""Pauses before a connection is tried again: they double up to a cap, and no two come back together."""

from random import Random

import pytest

from kvcompass.roles.backoff import Backoff, refused_us


class Longest(Random):
    """Nothing is taken off."""

    def uniform(self, _low: float, high: float) -> float:
        return high


def test_pauses_double_from_a_tenth_of_a_second_to_two():
    backoff = Backoff(Longest())
    assert [backoff.next_us() for _ in range(7)] == [
        100_000,
        200_000,
        400_000,
        800_000,
        1_600_000,
        2_000_000,
        2_000_000,
    ]
    backoff.reset()
    assert backoff.next_us() == 100_000


@pytest.mark.parametrize("seed", range(50))
def test_each_is_shortened_by_up_to_a_half(seed):
    longest, shortened = Backoff(Longest()), Backoff(Random(seed))
    for _ in range(10):
        whole_us, pause_us = longest.next_us(), shortened.next_us()
        assert whole_us / 2 <= pause_us < whole_us
        assert isinstance(pause_us, int)


def test_no_two_pause_alike():
    pauses = [[Backoff(Random(seed)).next_us() for _ in range(3)] for seed in range(100)]
    assert len({tuple(each) for each in pauses}) == 100


def test_after_a_refusal_the_pause_is_long_and_the_next_one_is_not():
    backoff = Backoff(Longest())
    assert backoff.next_us(refused_us("block_size")) == 5_000_000
    assert backoff.next_us(refused_us("stream")) == 200_000, "of a stream alone: another may be opened"
