"""Laws of the engine: results do not depend on who asks when, nothing leaks, turns are kept."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import AllBlocksCleared, BlockStored, EngineEvent
from kvcompass.engine_model import Engine, EngineConfig, EngineRequest, EngineTiming, Progress, Rejection

PAGE = 4
CONFIG = EngineConfig(page_size=PAGE, cache_tokens=160, max_running=3, max_queued=4)
FOREVER = 10**12


def request(name: str, prompt: list[int], answer: int = 0) -> EngineRequest:
    tokens = np.array(prompt, dtype=np.int32)
    return EngineRequest(name, tokens, np.arange(1_000, 1_000 + answer, dtype=np.int32))


def run(engine: Engine) -> list[Progress]:
    engine.advance(FOREVER)
    return engine.take_progress()


def stored(batches: list[list[EngineEvent]]) -> list[BlockStored]:
    return [event for batch in batches for event in batch if isinstance(event, BlockStored)]


ARRIVALS = st.lists(
    st.tuples(
        st.integers(0, 60_000),
        st.lists(st.integers(0, 1), min_size=1, max_size=40),
        st.integers(0, 12),
        st.one_of(st.none(), st.integers(0, 80_000)),
    ),
    max_size=9,
)


def play(arrivals: list[tuple[int, list[int], int, int | None]], asks: list[int]) -> tuple[object, Engine]:
    """Run arrivals and aborts through an engine that is also asked at other times."""
    engine = Engine(CONFIG)
    moments: list[tuple[int, int, str, EngineRequest | None]] = []
    for i, (at, prompt, answer, abort_after) in enumerate(arrivals):
        moments.append((at, 0, str(i), request(str(i), prompt, answer)))
        if abort_after is not None:
            moments.append((at + abort_after, 1, str(i), None))
    moments += [(at, 2, "", None) for at in asks]
    outcomes: list[object] = []
    for at, kind, name, what in sorted(moments, key=lambda moment: moment[:3]):
        if what is not None:
            outcomes.append(engine.submit(what, at))
        elif kind == 1:
            outcomes.append(engine.abort(name, at))
        else:
            engine.advance(at)
    engine.advance(FOREVER)
    events = [
        (type(event).__name__, getattr(event, "hashes", ()))
        for batch in engine.take_batches()
        for event in batch
    ]
    return (outcomes, engine.take_progress(), events), engine


@settings(max_examples=80, deadline=None)
@given(ARRIVALS, st.lists(st.integers(0, 200_000), max_size=20))
def test_what_happens_does_not_depend_on_when_one_looks(
    arrivals: list[tuple[int, list[int], int, int | None]], asks: list[int]
) -> None:
    quiet, engine = play(arrivals, [])
    watched, _ = play(arrivals, asks)
    assert quiet == watched
    load = engine.load(FOREVER)
    assert (load.running, load.waiting, load.used_tokens, load.decoding) == (0, 0, 0, 0)
    assert engine.cache.free_blocks + engine.cache.resident_blocks == engine.cache.capacity_blocks
    assert engine.next_deadline_us() is None


@given(st.integers(0, 60_000), st.integers(1, 60_000), st.integers(1, 60_000))
def test_prefill_in_two_parts_costs_what_it_costs_at_once(cached: int, first: int, second: int) -> None:
    timing = EngineTiming()
    parts = timing.prefill_us(cached, first) + timing.prefill_us(cached + first, second)
    assert abs(parts - timing.prefill_us(cached, first + second)) <= 1
    assert timing.prefill_us(cached, first) > 0


def test_the_first_token_comes_with_the_end_of_prefill_and_the_others_a_step_apart() -> None:
    engine = Engine(CONFIG)
    timing = CONFIG.timing
    assert engine.submit(request("a", [1] * 10, 3), 500) is None
    times = [(step.generated, step.at_us) for step in run(engine)]
    first = 500 + timing.prefill_us(0, 10)
    second = first + timing.decode_step_us(11)
    assert times == [(1, first), (2, second), (3, second + timing.decode_step_us(12))]


def test_prefills_take_turns_in_order_of_arrival() -> None:
    engine = Engine(CONFIG)
    for name in "abc":
        engine.submit(request(name, [ord(name)] * 20), 0)
    steps = run(engine)
    one = CONFIG.timing.prefill_us(0, 20)
    assert [(step.request_id, step.at_us) for step in steps] == [("a", one), ("b", 2 * one), ("c", 3 * one)]


def test_at_most_all_but_one_token_is_reused_in_whole_pages() -> None:
    engine = Engine(CONFIG)
    reused = []
    for turn, length in enumerate((13, 13, 12, 9, 8, 3)):
        now = turn * 10**6
        engine.submit(request("a", [7] * length), now)
        engine.advance(now + 10**6 - 1)
        reused += [step.cached_tokens for step in engine.take_progress()]
    assert reused == [0, 12, 8, 8, 4, 0]


def test_prefill_only_stores_the_prompt() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [7] * 9), 0)
    (step,) = run(engine)
    assert (step.generated, step.finished) == (0, True)
    cleared, *batches = engine.take_batches()
    assert isinstance(cleared[0], AllBlocksCleared)
    assert [event.tokens.tolist() for event in stored(batches)] == [[7] * 4, [7] * 4]


def test_an_answer_is_cached_too_but_for_its_last_token() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [7] * 6, 7), 0)
    run(engine)
    blocks = [event.tokens.tolist() for event in stored(engine.take_batches())]
    assert blocks == [[7] * 4, [7, 7, 1_000, 1_001], [1_002, 1_003, 1_004, 1_005]]
    follow_up = [7] * 6 + list(range(1_000, 1_007)) + [8]
    engine.submit(request("b", follow_up), FOREVER)
    engine.advance(2 * FOREVER)
    (step,) = engine.take_progress()
    assert step.cached_tokens == 12


def test_what_does_not_fit_waits_for_memory_and_nobody_overtakes() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("long", [1] * 100, 20), 0)
    engine.submit(request("next", [2] * 60, 1), 0)
    engine.submit(request("small", [3], 1), 0)
    done = [step.request_id for step in run(engine) if step.finished]
    assert done == ["long", "next", "small"]


def test_refusals_are_values() -> None:
    engine = Engine(CONFIG)
    assert engine.submit(request("huge", [1] * 150, 20), 0) is Rejection.TOO_LARGE
    accepted = [engine.submit(request(str(i), [i] * 30, 5), 0) for i in range(6)]
    assert accepted == [None] * 5 + [Rejection.QUEUE_FULL]
    assert engine.submit(request("0", [1]), 0) is Rejection.DUPLICATE_ID


def test_the_number_of_decoding_sequences_is_bounded() -> None:
    engine = Engine(CONFIG)
    for i in range(4):
        engine.submit(request(str(i), [i], 50), 0)
    engine.advance(1_000)
    assert engine.load(1_000).decoding == CONFIG.max_running
    assert engine.load(1_000).waiting == 1
    assert len([step for step in run(engine) if step.finished]) == 4


def test_a_flush_needs_rest_and_empties_everything() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [1] * 20, 5), 0)
    assert not engine.flush(10)
    run(engine)
    engine.take_batches()
    assert engine.flush(FOREVER)
    assert engine.cache.free_blocks == engine.cache.capacity_blocks
    ((event,),) = engine.take_batches()
    assert isinstance(event, AllBlocksCleared)


def test_busy_time_is_counted_up_to_now() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [1] * 100), 0)
    half = CONFIG.timing.prefill_us(0, 100) // 2
    assert engine.load(half).prefill_busy_us == half
    assert engine.load(FOREVER).prefill_busy_us == CONFIG.timing.prefill_us(0, 100)


def test_events_of_a_short_answer_do_not_wait_for_a_long_one() -> None:
    engine = Engine(replace(CONFIG, cache_tokens=4_000))
    engine.submit(request("long", [1] * 8, 200), 0)
    engine.submit(request("short", [2] * 8, 10), 0)
    engine.advance(60 * CONFIG.timing.decode_step_us(0))
    assert engine.load(60 * CONFIG.timing.decode_step_us(0)).running == 1
    blocks = [event.tokens.tolist() for event in stored(engine.take_batches())]
    assert [1_000, 1_001, 1_002, 1_003] in blocks
