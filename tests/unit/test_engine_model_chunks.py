"""Laws of continuous batching: what shares an iteration, and how long that takes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.engine_model import Engine, EngineConfig, EngineRequest, Progress, Scheduling

PAGE = 4
CONFIG = EngineConfig(
    page_size=PAGE, cache_tokens=4_000, max_running=8, scheduling=Scheduling.CHUNKED, chunk_tokens=64
)
TIMING = CONFIG.timing
FOREVER = 10**12


def request(name: str, prompt: list[int], answer: int = 1) -> EngineRequest:
    tokens = np.array(prompt, dtype=np.int32)
    return EngineRequest(name, tokens, np.arange(1_000, 1_000 + answer, dtype=np.int32))


def busy_engine(config: EngineConfig, requests: list[EngineRequest]) -> tuple[Engine, int]:
    """Requests that came while the engine was busy, and when it can turn to them."""
    engine = Engine(config)
    engine.submit(request("before", [999]), 0)
    for one in requests:
        assert engine.submit(one, 1) is None
    start_us = engine.next_deadline_us()
    assert start_us is not None
    return engine, start_us


def run(config: EngineConfig, requests: list[EngineRequest]) -> tuple[dict[str, Progress], int]:
    """The first token of each request, and when the engine turned to them."""
    engine, start_us = busy_engine(config, requests)
    engine.advance(FOREVER)
    assert engine.load(FOREVER).used_tokens == 0
    return {step.request_id: step for step in engine.take_progress() if step.generated == 1}, start_us


@given(st.integers(200, 3_000), st.integers(180, 2_048))
def test_a_prompt_alone_takes_as_long_in_chunks_as_at_once(tokens: int, chunk: int) -> None:
    """Where a chunk's computation takes longer than reading the weights; the last may be shorter."""
    config = replace(CONFIG, chunk_tokens=chunk)
    steps, start_us = run(config, [request("a", list(range(tokens)))])
    last = tokens % chunk or chunk
    shortfall_us = max(0.0, 1_000 * (TIMING.decode_ms - TIMING.prefill_ms_per_token * last))
    assert steps["a"].at_us - start_us == pytest.approx(TIMING.prefill_us(0, tokens) + shortfall_us, abs=2)


def test_short_prompts_share_an_iteration_which_takes_one_reading_of_the_weights() -> None:
    steps, start_us = run(CONFIG, [request(name, [ord(name)] * 16) for name in "abcd"])
    (end_us,) = {steps[name].at_us for name in "abcd"}
    squares_us = 4 * 16**2 * 1e3 * TIMING.prefill_ms_per_token_squared
    assert end_us - start_us == pytest.approx(1e3 * TIMING.decode_ms + squares_us, abs=1)


def test_what_does_not_fit_a_chunk_comes_in_the_next_and_nobody_overtakes() -> None:
    steps, _ = run(CONFIG, [request("a", [1] * 100), request("b", [2] * 40), request("c", [3] * 8)])
    a, b, c = (steps[name].at_us for name in "abc")
    # 64 of a; 36 of a and 28 of b; 12 of b and all of c.
    assert a < b == c
    assert b - a == pytest.approx(1e3 * TIMING.decode_ms, abs=2)


def test_decoding_goes_on_beside_prefills_and_both_are_slower() -> None:
    config = replace(CONFIG, chunk_tokens=1_000, cache_tokens=40_000)
    engine = Engine(config)
    engine.submit(request("a", [1] * 40, 200), 0)
    engine.advance(50_000)
    engine.submit(request("long", [2] * 3_000), 50_000)
    engine.advance(FOREVER)
    progress = engine.take_progress()
    (long,) = [step for step in progress if step.request_id == "long"]
    times = [step.at_us for step in progress if step.request_id == "a"]
    gaps = np.diff(times)
    with_chunk = gaps > 2_000 * TIMING.decode_ms
    assert with_chunk.sum() == 3, "one token an iteration, three iterations with 1,000 tokens of the other"
    assert gaps[with_chunk] == pytest.approx(
        [1e3 * (TIMING.prefill_ms_per_token * 1_001 + 1.38e-6 * (2 * i + 1) * 1e6) for i in range(3)], abs=20
    )
    assert gaps[~with_chunk] == pytest.approx(1e3 * TIMING.decode_ms, rel=0.01)
    assert long.at_us == times[np.flatnonzero(with_chunk)[-1] + 1]


def test_a_burst_of_siblings_reuses_only_what_has_been_computed() -> None:
    steps, _ = run(CONFIG, [request(name, [7] * 100) for name in "abc"])
    # b is taken up with the second chunk of a, of which 64 tokens are there; c after all of a is.
    assert [steps[name].cached_tokens for name in "abc"] == [0, 64, 96]


def test_siblings_within_one_chunk_reuse_nothing_of_each_other() -> None:
    steps, _ = run(replace(CONFIG, chunk_tokens=300), [request(name, [7] * 100) for name in "abc"])
    assert [steps[name].cached_tokens for name in "abc"] == [0, 0, 0]


def test_siblings_in_turns_reuse_what_has_been_prefilled_before_their_turn() -> None:
    config = replace(CONFIG, scheduling=Scheduling.TURNS)
    steps, _ = run(config, [request(name, [7] * 100) for name in "abc"])
    assert [steps[name].cached_tokens for name in "abc"] == [0, 96, 96]


def test_sequences_are_bounded_those_being_prefilled_included() -> None:
    few = [request(name, [ord(name)] * 8, 5) for name in "abc"]
    engine, start_us = busy_engine(replace(CONFIG, max_running=2), few)
    load = engine.load(start_us)
    assert (load.running, load.waiting) == (2, 1)
    engine.advance(FOREVER)
    assert {step.request_id for step in engine.take_progress() if step.finished} >= {"a", "b", "c"}


def test_who_leaves_during_an_iteration_frees_memory_at_once_and_the_iteration_goes_on() -> None:
    engine, start_us = busy_engine(CONFIG, [request("a", [1] * 32), request("b", [2] * 32)])
    now_us = start_us + 1_000
    used = engine.load(now_us).used_tokens
    assert engine.abort("a", now_us)
    assert engine.load(now_us).used_tokens == used - 35
    engine.submit(request("c", [3] * 16), now_us)
    engine.advance(FOREVER)
    times = {step.request_id: step.at_us - start_us for step in engine.take_progress()}
    assert "a" not in times
    assert times["b"] == pytest.approx(1e3 * TIMING.decode_ms, rel=0.01)
    assert times["c"] == pytest.approx(2e3 * TIMING.decode_ms, rel=0.01)


def test_the_measured_prefill_rate_counts_iterations() -> None:
    engine = Engine(replace(CONFIG, chunk_tokens=500))
    engine.submit(request("a", list(range(1_000))), 0)
    engine.advance(FOREVER)
    load = engine.load(FOREVER)
    assert load.prefilled_tokens == 1_000
    assert load.prefilled_us == load.prefill_busy_us == engine.take_progress()[0].at_us
