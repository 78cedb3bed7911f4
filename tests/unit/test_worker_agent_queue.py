"""The queue estimate: what is counted wins over what is guessed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.engine_events import BlockRemoved, BlockStored
from kvcompass.roles.queue_estimate import EngineLoad, QueueEstimate

RATE = 0.1
QUANTUM = 128


def chain(tokens: int, first_hash: int, parent: int | None = None) -> list[BlockStored]:
    """One event a block of 64 tokens."""
    hashes = [*range(first_hash, first_hash + tokens // 64)]
    parents = [parent, *hashes]
    return [
        BlockStored((block_hash,), above, np.zeros(64, dtype=np.int32), 64, "GPU")
        for block_hash, above in zip(hashes, parents, strict=False)
    ]


def load(waiting: int, **more: int) -> EngineLoad:
    return EngineLoad(running=0, waiting=waiting, used_tokens=0, max_tokens=0, **more)


def test_no_queue_is_no_delay() -> None:
    assert QueueEstimate(RATE, QUANTUM).queue_ms(load(0)) == 0.0


@given(st.integers(1, 50))
def test_more_waiting_is_more_delay(waiting: int) -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    assert 0.0 < estimate.queue_ms(load(waiting)) < estimate.queue_ms(load(waiting + 1))


def test_the_mean_follows_what_requests_compute() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    for number in range(100):
        estimate.on_events(chain(4_096, 1_000 * number))
    assert estimate.mean_uncached_tokens == pytest.approx(4_096, rel=0.01)
    assert estimate.queue_ms(load(2)) == pytest.approx(2.5 * 4_096 * RATE, rel=0.01)


def test_generated_text_removals_and_copies_are_no_requests() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    before = estimate.mean_uncached_tokens
    copies = [BlockStored(e.hashes, e.parent, e.tokens, 64, "CPU_PINNED") for e in chain(640, 50)]
    estimate.on_events([*chain(64, 1), BlockRemoved((1,), "GPU"), *chain(64, 2, parent=1), *copies])
    assert estimate.mean_uncached_tokens == before


def test_two_requests_in_a_batch_are_two_chains() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    for number in range(100):
        estimate.on_events([*chain(1_024, 1_000 * number), *chain(2_048, 1_000 * number + 500)])
    assert 1_024 < estimate.mean_uncached_tokens < 2_048


def test_counted_tokens_need_no_guess() -> None:
    assert QueueEstimate(RATE, QUANTUM).queue_ms(load(9, waiting_uncached_tokens=700)) == pytest.approx(70.0)


def test_the_rate_is_measured_from_differences() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    assert estimate.measured_ms_per_token == 0.0
    totals = [(10_000, 5_000_000), (10_010, 5_002_000), (11_000, 5_200_000)]
    for tokens, busy_us in totals:
        estimate.on_engine_load(load(0, prefill_uncached_tokens=tokens, prefill_busy_us=busy_us))
    assert estimate.measured_ms_per_token == pytest.approx(0.2)
    assert estimate.queue_ms(load(1, waiting_uncached_tokens=100)) == pytest.approx(20.0)


def test_counters_that_go_back_are_a_new_engine() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    for tokens, busy_us in [(10_000, 5_000_000), (0, 0), (1_000, 100_000)]:
        estimate.on_engine_load(load(0, prefill_uncached_tokens=tokens, prefill_busy_us=busy_us))
    assert estimate.measured_ms_per_token == pytest.approx(0.1)


@given(st.integers(0, 64), st.integers(0, 4_000), st.integers(0, 9), st.integers(1, 4_000))
def test_where_memory_is_full_the_next_request_waits(
    running: int, used: int, waiting: int, capacity: int
) -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    state = EngineLoad(running, waiting, used, capacity, waiting_uncached_tokens=100 * waiting)
    more = estimate.queue_ms(state) - 100 * waiting * RATE
    one_more = estimate.mean_uncached_tokens * RATE
    if running and capacity - used < used / running:
        assert more == pytest.approx(one_more)
    else:
        assert more == pytest.approx(0.0)
    fuller = estimate.queue_ms(state._replace(used_tokens=used + 1))
    assert fuller >= estimate.queue_ms(state), "more memory in use is never a shorter queue"


def test_an_idle_engine_is_never_full() -> None:
    assert QueueEstimate(RATE, QUANTUM).queue_ms(EngineLoad(0, 0, 1_000, 1_000)) == 0.0


def answered(requests: int, uncached: int) -> EngineLoad:
    return load(0)._replace(finished_requests=requests, finished_uncached_tokens=uncached)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 50_000)), min_size=1, max_size=20))
def test_the_mean_of_counted_requests_stays_between_what_they_took(answers: list[tuple[int, int]]) -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    seen = [estimate.mean_uncached_tokens]
    requests = tokens = 0
    estimate.on_engine_load(answered(0, 0))
    for more, each in answers:
        requests, tokens = requests + more, tokens + more * each
        estimate.on_engine_load(answered(requests, tokens))
        seen += [float(each)] * bool(more)
        assert min(seen) - 1e-6 <= estimate.mean_uncached_tokens <= max(seen) + 1e-6


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 10_000))
def test_it_makes_no_difference_how_often_the_counters_are_read(first: int, second: int, each: int) -> None:
    often, seldom = QueueEstimate(RATE, QUANTUM), QueueEstimate(RATE, QUANTUM)
    for estimate, reads in ((often, [first, first + second]), (seldom, [first + second])):
        estimate.on_engine_load(answered(0, 0))
        for requests in reads:
            estimate.on_engine_load(answered(requests, requests * each))
    assert often.mean_uncached_tokens == pytest.approx(seldom.mean_uncached_tokens)


def test_stored_chains_count_only_while_the_engine_does_not_count() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    estimate.on_engine_load(answered(0, 0))
    estimate.on_engine_load(answered(100, 200 * 100))
    estimate.on_events(chain(8_192, 1))
    assert estimate.mean_uncached_tokens == pytest.approx(200, rel=0.01)
    estimate.on_engine_load(load(0))
    estimate.on_events(chain(8_192, 1_000))
    assert estimate.mean_uncached_tokens > 900, "its source is another, which does not"


def test_counters_of_answers_that_go_back_are_a_new_engine() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    for requests, tokens in [(10, 1_000), (20, 2_000), (1, 90_000), (2, 90_100)]:
        estimate.on_engine_load(answered(requests, tokens))
    assert 100 < estimate.mean_uncached_tokens < 1_024, "the first answers of the new one are not counted"


def test_a_source_without_prefill_counters_forgets_those_of_the_one_before() -> None:
    estimate = QueueEstimate(RATE, QUANTUM)
    counted = load(0, prefill_uncached_tokens=1_000, prefill_busy_us=100_000)
    estimate.on_engine_load(counted)
    estimate.on_engine_load(load(0))
    estimate.on_engine_load(counted._replace(prefill_uncached_tokens=90_000, prefill_busy_us=100_001))
    assert estimate.measured_ms_per_token == 0.0, "another engine's counters, for all that is known"


@given(st.integers(0, 64), st.integers(0, 4_000))
def test_memory_that_is_not_told_is_never_full(running: int, used: int) -> None:
    assert QueueEstimate(RATE, QUANTUM).queue_ms(EngineLoad(running, 0, used, 0)) == 0.0


def test_what_a_load_lacks_is_named() -> None:
    assert load(0).lacks == (
        "waiting_uncached_tokens",
        "prefill_rate",
        "uncached_tokens_of_a_request",
        "memory",
    )
    told = EngineLoad(1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert told.lacks == ()
