"""Laws of the engine: results do not depend on who asks when, nothing leaks, turns are kept."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model import (
    Engine,
    EngineConfig,
    EngineRequest,
    EngineTiming,
    EvictionPolicy,
    Progress,
    Rejection,
)

PAGE = 4
CONFIG = EngineConfig(page_size=PAGE, cache_tokens=160, max_running=3, max_queued=4)
FOREVER = 10**12


def request(name: str, prompt: list[int], answer: int = 0) -> EngineRequest:
    tokens = np.array(prompt, dtype=np.int32)
    return EngineRequest(name, tokens, np.arange(1_000, 1_000 + answer, dtype=np.int32))


def run(engine: Engine) -> list[Progress]:
    engine.advance(FOREVER)
    return engine.take_progress()


def decode_step_us(context_tokens: int) -> int:
    """One more token of every sequence, with so many tokens of context in the batch."""
    timing = CONFIG.timing
    return round(1_000 * (timing.decode_ms + timing.decode_ms_per_context_token * context_tokens))


def stored(batches: list[list[EngineEvent]]) -> list[list[int]]:
    """Tokens of each block stored."""
    events = [event for batch in batches for event in batch if isinstance(event, BlockStored)]
    return [page for event in events for page in event.tokens.reshape(-1, PAGE).tolist()]


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
    second = first + decode_step_us(11)
    assert times == [(1, first), (2, second), (3, second + decode_step_us(12))]


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
    assert stored(batches) == [[7] * 4, [7] * 4]


def test_an_answer_is_cached_too_but_for_its_last_token() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [7] * 6, 7), 0)
    run(engine)
    blocks = stored(engine.take_batches())
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
    engine.advance(60 * decode_step_us(0))
    assert engine.load(60 * decode_step_us(0)).running == 1
    blocks = stored(engine.take_batches())
    assert [1_000, 1_001, 1_002, 1_003] in blocks


def test_what_dram_kept_is_loaded_back_before_the_prefill() -> None:
    engine = Engine(replace(CONFIG, host_cache_tokens=400))
    timing = CONFIG.timing
    engine.submit(request("a", [1] * 100), 0)
    engine.submit(request("b", [2] * 140), 0)
    run(engine)
    engine.submit(request("again", [1] * 100), FOREVER)
    engine.advance(2 * FOREVER)
    (step,) = engine.take_progress()
    # 160 tokens of VRAM hold 140 of b and 20 of a; 96 of a may be matched.
    assert (step.cached_tokens, step.cached_host_tokens) == (96, 76)
    assert step.at_us == FOREVER + timing.prefill_us(96, 4) + timing.reload_us(76)
    load = engine.load(2 * FOREVER)
    assert (load.cached_tokens, load.cached_host_tokens) == (96, 76)
    assert engine.cache.dram_blocks * CONFIG.page_size == 240


def test_reloading_costs_what_the_link_carries() -> None:
    assert EngineTiming().reload_us(1_000) == 5_240


def test_a_transferred_request_decodes_at_once_and_leaves_no_trace() -> None:
    engine = Engine(CONFIG)
    engine.take_batches()
    engine.submit(replace(request("a", [1] * 100, 9), transferred=True), 500)
    assert engine.load(500).used_tokens == 112 - 8, "room for what is not generated is kept and not used"
    steps = run(engine)
    assert [(step.generated, step.cached_tokens) for step in steps] == [(i, 0) for i in range(1, 10)]
    assert steps[0].at_us == 500
    assert steps[1].at_us == 500 + decode_step_us(101)
    assert engine.take_batches() == []
    load = engine.load(FOREVER)
    assert (load.prefill_busy_us, load.prompt_tokens, load.used_tokens) == (0, 0, 0)
    assert engine.cache.resident_blocks == 0


def test_a_batch_uses_what_it_has_and_not_what_it_will_have() -> None:
    engine = Engine(replace(CONFIG, cache_tokens=4_000))
    for number in range(3):
        engine.submit(request(f"{number}", [number] * 40, 500), 0)
    used = []
    for now_us in range(20_000, 5_000_000, 400_000):
        engine.advance(now_us)
        made = engine.load(now_us).generated_tokens
        used.append(engine.load(now_us).used_tokens)
        assert 0 <= used[-1] - (120 + made) < 3 * PAGE or not engine.load(now_us).running
    assert used == sorted(used)
    assert used[0] < 140
    assert used[-1] > 1_000


def test_a_transferred_request_matches_nothing_and_waits_for_memory() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [1] * 100, 40), 0)
    engine.submit(replace(request("b", [1] * 100, 2), transferred=True), 10)
    done = [step.request_id for step in run(engine) if step.finished]
    assert done == ["a", "b"]


def test_slow_takes_effect_for_work_that_starts_after() -> None:
    engine = Engine(CONFIG)
    timing = CONFIG.timing
    one = timing.prefill_us(0, 20)
    engine.submit(request("a", [1] * 20), 0)
    engine.submit(request("b", [2] * 20, 2), 0)
    engine.set_slowdown(3.0, one // 2)
    slow = one + 3 * one
    step = -(-3 * (11 * 10**9 + 66_000 * 21) // 10**6)
    assert [done.at_us for done in run(engine)] == [one, slow, slow + step]
    engine.set_slowdown(1.0, FOREVER)
    engine.submit(request("c", [3] * 20), FOREVER)
    engine.advance(2 * FOREVER)
    assert engine.take_progress()[0].at_us == FOREVER + one


def test_eviction_can_be_changed_while_running() -> None:
    def reused(policy: EvictionPolicy | None) -> int:
        engine = Engine(CONFIG)
        if policy is not None:
            engine.set_eviction(policy, 0)
        # 1 is used three times, 2 was used last.
        for turn, token in enumerate((1, 1, 1, 2, 3, 1)):
            engine.submit(request(str(turn), [token] * (60 if token < 3 else 80)), turn * 10**6)
        engine.advance(FOREVER)
        return engine.take_progress()[-1].cached_tokens

    assert reused(None) < reused(EvictionPolicy.LFU) == 56


def test_a_change_of_policy_comes_after_what_was_due_before_it() -> None:
    def victims(ask: bool) -> list[object]:
        engine = Engine(CONFIG)
        one = CONFIG.timing.prefill_us(0, 80)
        # a and b nearly fill the cache, a is asked for again; c needs the room of one of them.
        for name, token, length in (("a", 1, 60), ("b", 2, 80), ("again", 1, 60), ("c", 3, 80)):
            engine.submit(request(name, [token] * length), 0)
        if ask:
            engine.advance(3 * one)
        engine.set_eviction(EvictionPolicy.FIFO, 3 * one)
        run(engine)
        events = [event for batch in engine.take_batches() for event in batch]
        return [event.hashes for event in events if isinstance(event, BlockRemoved)]

    assert victims(ask=False) == victims(ask=True)


def test_the_prefill_rate_can_be_read_from_two_loads() -> None:
    engine = Engine(CONFIG)
    engine.submit(request("a", [1] * 100), 0)
    engine.submit(request("b", [1] * 100), 0)
    engine.submit(request("c", [2] * 40), 0)
    assert engine.load(0).waiting_uncached_tokens == 140
    first = CONFIG.timing.prefill_us(0, 100)
    second = CONFIG.timing.prefill_us(96, 4)
    halfway = engine.load(first + 1)
    assert (halfway.prefilled_tokens, halfway.prefilled_us) == (100, first)
    assert halfway.waiting_uncached_tokens == int(40 * (1 - 96 / 200))
    later = engine.load(first + second)
    assert (later.prefilled_tokens, later.prefilled_us) == (104, first + second)
