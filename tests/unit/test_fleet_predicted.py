"""Predicted holdings: what was sent to a worker without events is expected there for its time, no longer."""

from itertools import takewhile

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.fleet.expected import GRACE_US, ExpectedHoldings
from kvcompass.fleet.predicted import PredictedKeys

RUNGS = np.array([128, 256, 384, 512], np.int32)
WORKERS = 3
TTL_US = 60_000_000
SILENT = 1
"""The worker whose engine sends no events."""


def keys_of(prompt: str) -> np.ndarray:
    """A key for every prefix of a short word."""
    return np.array([int.from_bytes(prompt[: i + 1].encode()) for i in range(len(prompt))], np.uint64)


def make() -> ExpectedHoldings:
    expected = ExpectedHoldings(RUNGS, WORKERS, 1_000)
    expected.predict({SILENT: "silent"}, TTL_US)
    return expected


def served(expected: ExpectedHoldings, prompt: str, now_us: int, worker: int = SILENT) -> None:
    expected.expect((prompt, now_us), worker, keys_of(prompt), 0, now_us)
    expected.prefilled((prompt, now_us), now_us)


def matches(expected: ExpectedHoldings, prompt: str, now_us: int) -> list[int]:
    found = expected.match(keys_of(prompt), now_us)
    return [0] * WORKERS if found is None else found.tolist()


def test_it_outlives_the_grace_and_ends_with_its_time() -> None:
    expected = make()
    served(expected, "abcd", 0)
    served(expected, "abcd", 0, worker=0)
    assert matches(expected, "abxx", GRACE_US - 1) == [256, 256, 0]
    assert matches(expected, "abxx", GRACE_US) == [0, 256, 0]
    assert matches(expected, "abxx", TTL_US - 1) == [0, 256, 0]
    assert matches(expected, "abxx", TTL_US) == [0, 0, 0]
    assert (len(expected), expected.predicted_keys(SILENT)) == (0, 0)


def test_who_is_sent_there_again_renews_what_it_shares() -> None:
    expected = make()
    served(expected, "abcd", 0)
    served(expected, "ab", TTL_US // 2)
    assert matches(expected, "abcd", TTL_US) == [0, 256, 0]
    assert matches(expected, "abcd", TTL_US + TTL_US // 2) == [0, 0, 0]


def test_what_is_under_way_is_expected_and_not_predicted() -> None:
    expected = make()
    expected.expect("r", SILENT, keys_of("abcd"), 0, 0)
    assert matches(expected, "abcd", 1) == [0, 512, 0]
    assert expected.predicted_match(SILENT, keys_of("abcd"), 1) == 0
    expected.prefilled("r", 2)
    assert expected.predicted_match(SILENT, keys_of("abxx"), 3) == 256
    assert expected.predicted_match(0, keys_of("abxx"), 3) == 0


def test_a_request_without_an_answer_leaves_nothing() -> None:
    expected = make()
    expected.expect("r", SILENT, keys_of("abcd"), 0, 0)
    expected.ended("r")
    assert matches(expected, "abcd", 1) == [0, 0, 0]


def test_a_worker_that_was_gone_is_forgotten_alone() -> None:
    expected = make()
    expected.predict({SILENT: "silent", 2: "other"}, TTL_US)
    served(expected, "abcd", 0)
    served(expected, "abcd", 0, worker=2)
    expected.forget(SILENT)
    assert matches(expected, "abcd", 1) == [0, 0, 512]


def test_a_seat_that_changed_hands_knows_nothing() -> None:
    expected = make()
    served(expected, "abcd", 0)
    expected.predict({SILENT: "silent"}, TTL_US)
    assert matches(expected, "abcd", 1) == [0, 512, 0], "the next version of the plan has it still"
    expected.predict({SILENT: "a new one"}, TTL_US)
    assert matches(expected, "abcd", 1) == [0, 0, 0]
    served(expected, "abcd", 2)
    expected.predict({}, TTL_US)
    assert (matches(expected, "abcd", 3), expected.predicted_keys(SILENT)) == ([0, 0, 0], 0)


def test_the_least_lately_sent_goes_first_and_is_counted() -> None:
    kept = PredictedKeys("w", limit=3)
    assert kept.keep([1, 2, 3], 10) == ([1, 2, 3], [])
    assert kept.keep([1], 11) == ([], [])
    assert kept.keep([4, 5], 12) == ([4, 5], [2, 3])
    assert (len(kept), kept.dropped, 1 in kept, 2 in kept) == (3, 2, True, False)
    assert kept.keep([6, 7, 8, 9], 13) == ([6, 7, 8, 9], [1, 4, 5, 6])
    assert kept.expire(12) == []
    assert kept.expire(13) == [7, 8, 9]


words = st.text("ab", min_size=1, max_size=4)
steps = st.lists(
    st.tuples(
        st.sampled_from(("served", "failed", "gone")),
        words,
        st.integers(0, WORKERS - 1),
        st.integers(0, TTL_US),
    ),
    max_size=30,
)


@settings(max_examples=200, deadline=None)
@given(steps, words, st.integers(0, TTL_US))
def test_it_equals_a_list_that_is_searched(
    log: list[tuple[str, str, int, int]], asked: str, wait_us: int
) -> None:
    expected = ExpectedHoldings(RUNGS, WORKERS, 1_000)
    expected.predict({0: "a", SILENT: "silent"}, TTL_US)
    past: list[tuple[int, str, int]] = []
    now_us = 0
    for i, (kind, word, worker, after_us) in enumerate(log):
        now_us += after_us
        if kind == "gone":
            expected.forget(worker)
            past = [each for each in past if each[0] != worker or worker == 2]
            continue
        expected.expect(i, worker, keys_of(word), 0, now_us)
        if kind == "served":
            expected.prefilled(i, now_us)
            past.append((worker, word, now_us + (GRACE_US if worker == 2 else TTL_US)))
        else:
            expected.ended(i)
    now_us += wait_us
    naive = [0] * WORKERS
    for worker, word, until_us in past:
        agreed = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(word, asked, strict=False)))
        if until_us > now_us:
            naive[worker] = max(naive[worker], 128 * agreed)
    assert matches(expected, asked, now_us) == naive
