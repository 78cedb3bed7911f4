"""Loads are absolute: an overtaken one must not stand."""

from hypothesis import given
from hypothesis import strategies as st

from kvcompass.fleet.sequence_guard import SequenceGuard


@given(st.lists(st.integers(0, 20), max_size=40))
def test_within_an_epoch_only_what_is_newer_than_all_before(sequences: list[int]) -> None:
    guard, newest = SequenceGuard(), -1
    for sequence in sequences:
        assert guard.admit("a", 7, sequence) == (sequence > newest)
        newest = max(newest, sequence)


def test_a_new_epoch_starts_over_and_its_predecessor_is_gone() -> None:
    guard = SequenceGuard()
    assert guard.admit("a", 9, 100)
    assert guard.admit("a", 3, 1), "epochs have no order"
    assert not guard.admit("a", 9, 101), "a straggler of the old process"
    assert guard.admit("a", 3, 2)


def test_senders_do_not_disturb_one_another() -> None:
    guard = SequenceGuard()
    assert guard.admit("a", 1, 10)
    assert guard.admit("b", 1, 1)
    assert not guard.admit("a", 1, 10)
