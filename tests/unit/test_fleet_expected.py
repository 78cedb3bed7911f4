"""Predict on route: what is expected, how long, and that nothing is left behind."""

from itertools import takewhile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.fleet.expected import GRACE_US, ExpectedHoldings

RUNGS = np.array([128, 256, 384, 512], np.int32)
WORKERS = 3


def keys_of(prompt: str) -> np.ndarray:
    """A key for every prefix of a short word: equal words share keys just as far as they agree."""
    return np.array([int.from_bytes(prompt[: i + 1].encode()) for i in range(len(prompt))], np.uint64)


def make(limit: int = 100) -> ExpectedHoldings:
    return ExpectedHoldings(RUNGS, WORKERS, limit)


def test_a_sibling_is_expected_to_match_as_far_as_they_agree() -> None:
    expected = make()
    expected.expect("a", 1, keys_of("abcd"), 0, now_us=0)
    answer = expected.match(keys_of("abxx"), now_us=1)
    assert answer is not None
    assert answer.tolist() == [0, 256, 0]
    assert expected.match(keys_of("xbcd"), now_us=1) is None
    assert expected.match(keys_of(""), now_us=1) is None


def test_what_the_index_knows_already_is_not_expected() -> None:
    expected = make()
    expected.expect("a", 1, keys_of("abcd"), beyond_tokens=256, now_us=0)
    assert expected.match(keys_of("ab"), 1) is None
    answer = expected.match(keys_of("abcd"), 1)
    assert answer is not None
    assert answer.tolist() == [0, 512, 0]
    expected.expect("b", 2, keys_of("ab"), beyond_tokens=256, now_us=0)
    assert len(expected) == 1


def test_it_stands_until_the_first_byte_and_a_grace_more() -> None:
    expected = make()
    expected.expect("a", 0, keys_of("abcd"), 0, now_us=0)
    assert expected.match(keys_of("abcd"), 100 * GRACE_US) is not None
    expected.prefilled("a", now_us=0)
    expected.ended("a")
    assert expected.match(keys_of("abcd"), GRACE_US - 1) is not None
    assert expected.match(keys_of("abcd"), GRACE_US) is None
    assert len(expected) == 0


def test_a_request_that_never_answered_leaves_nothing() -> None:
    expected = make()
    expected.expect("a", 0, keys_of("abcd"), 0, now_us=0)
    expected.expect("b", 0, keys_of("abcd"), 0, now_us=0)
    expected.ended("a")
    assert expected.match(keys_of("abcd"), 0) is not None, "the sibling is still under way"
    expected.ended("b")
    assert expected.match(keys_of("abcd"), 0) is None


def test_the_table_is_bounded_and_drops_are_counted() -> None:
    expected = make(limit=2)
    for i in range(5):
        expected.expect(i, 0, keys_of("abcd"), 0, now_us=0)
    assert (len(expected), expected.dropped) == (2, 3)
    expected.prefilled(0, now_us=0)
    expected.expect(5, 0, keys_of("abcd"), 0, now_us=0)
    assert expected.dropped == 4, "those in their grace count"
    expected.expect(6, 0, keys_of("abcd"), 0, now_us=GRACE_US)
    assert expected.dropped == 4


words = st.text("ab", min_size=1, max_size=4)
events = st.lists(
    st.tuples(
        st.sampled_from(("expect", "prefilled", "ended")),
        st.integers(0, 5),
        words,
        st.integers(0, WORKERS - 1),
        st.integers(0, GRACE_US),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(events, words)
def test_it_equals_a_list_that_is_searched(log: list[tuple[str, int, str, int, int]], asked: str) -> None:
    expected = make()
    standing: dict[int, tuple[int, str]] = {}
    faded: list[tuple[int, str, int]] = []
    now_us = 0
    for kind, request_id, word, worker, wait_us in log:
        now_us += wait_us
        if kind == "expect" and request_id not in standing:
            expected.expect(request_id, worker, keys_of(word), 0, now_us)
            standing[request_id] = (worker, word)
        elif kind == "prefilled":
            expected.prefilled(request_id, now_us)
            if request_id in standing:
                faded.append((*standing.pop(request_id), now_us + GRACE_US))
        elif kind == "ended":
            expected.ended(request_id)
            standing.pop(request_id, None)

    naive = [0] * WORKERS
    alive = list(standing.values())
    alive += [(worker, word) for worker, word, until_us in faded if until_us > now_us]
    for worker, word in alive:
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, asked, strict=False)))
        naive[worker] = max(naive[worker], 128 * agreed)
    answer = expected.match(keys_of(asked), now_us)
    assert ([0] * WORKERS if answer is None else answer.tolist()) == naive
    assert len(expected) == len(alive)
