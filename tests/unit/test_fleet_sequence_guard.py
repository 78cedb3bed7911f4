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


def test_a_new_stream_brings_its_epoch_back() -> None:
    guard = SequenceGuard()
    assert guard.open("a", 9, 100)
    assert guard.open("a", 3, 1), "another process speaks for the sender"
    assert not guard.admit("a", 9, 101)
    assert guard.open("a", 9, 102), "the first one comes again"
    assert guard.admit("a", 9, 103)
    assert not guard.admit("a", 3, 2)
    assert guard.open("a", 3, 3)
    assert not guard.open("a", 9, 103), "old news; but the stream stands"
    assert guard.admit("a", 9, 104)


def test_a_stream_in_the_senders_own_epoch_silences_it_no_longer_than_to_its_next() -> None:
    guard = SequenceGuard()
    assert guard.open("a", 9, 100)
    assert guard.open("a", 9, 2**64 - 1), "somebody else, whose numbers are larger than any"
    assert not guard.admit("a", 9, 101)
    assert not guard.open("a", 9, 102), "it may have waited while others came; but the stream stands"
    assert guard.admit("a", 9, 103)
    assert not guard.admit("a", 9, 103)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.booleans()), max_size=60))
def test_what_a_stream_opened_last_says_stands_and_each_sequence_once(
    messages: list[tuple[int, int, bool]],
) -> None:
    """By epochs that open streams only: whoever opened last is believed, from its own number on."""
    guard, speaks, newest = SequenceGuard(), -1, -1
    for epoch, sequence, opens in messages:
        if opens:
            guard.open("a", epoch, sequence)
            speaks, newest = epoch, sequence
        elif epoch == speaks:
            assert guard.admit("a", epoch, sequence) == (sequence > newest)
            newest = max(newest, sequence)
        else:
            continue
        assert not guard.admit("a", epoch, newest)
        assert guard.admit("a", epoch, newest + 1)
        newest += 1


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(1, 3))
def test_no_message_of_an_epoch_that_was_left_is_taken(left: int, sequence: int, epoch: int) -> None:
    guard = SequenceGuard()
    guard.open("a", 0, left)
    guard.open("a", epoch, sequence)
    assert not guard.admit("a", 0, 2**64)
    assert guard.open("a", 0, sequence) == (sequence > left), "its own stream brings it back"


def test_senders_do_not_disturb_one_another() -> None:
    guard = SequenceGuard()
    assert guard.admit("a", 1, 10)
    assert guard.admit("b", 1, 1)
    assert not guard.admit("a", 1, 10)
