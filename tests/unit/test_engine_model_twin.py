"""The engine against a twin that walks through every decode step, whoever asks it when."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import (
    BlockNames,
    Engine,
    EngineConfig,
    EngineRequest,
    EngineTiming,
    EvictionPolicy,
    Scheduling,
)
from tests.models.engine_naive import NaiveEngine

FOREVER = 10**12
TIMINGS = (
    EngineTiming(),
    EngineTiming(decode_ms=2.0, decode_ms_per_context_token=0.01),
    EngineTiming.linear(0.5),
    EngineTiming(decode_ms=0.0173, prefill_ms_per_token=0.003, decode_ms_per_context_token=0.0),
    EngineTiming(0.0, 0.0, 0.0, 0.001, 0.0),
    EngineTiming(0.0, 0.0, 0.0, 0.0, 0.0),
)
CONFIGS = st.builds(
    EngineConfig,
    page_size=st.just(4),
    cache_tokens=st.sampled_from((160, 120, 400)),
    max_running=st.sampled_from((3, 2, 8)),
    max_queued=st.sampled_from((9, 3)),
    timing=st.sampled_from(TIMINGS),
    host_cache_tokens=st.sampled_from((0, 40, 400)),
    eviction=st.sampled_from(EvictionPolicy),
    scheduling=st.sampled_from(Scheduling),
    chunk_tokens=st.sampled_from((16, 1, 7, 64)),
    block_names=st.sampled_from(BlockNames),
)
Action = tuple[int, Any]
"""A time, and what is done with an engine at it."""


@st.composite
def scripts(draw: st.DrawFn) -> list[Action]:
    """Requests, aborts and changes, over a time in which they wait for one another or do not."""
    horizon = draw(st.sampled_from((60_000, 2_000, 400_000, 1_500_000)))
    times = st.integers(0, horizon)
    actions: list[Action] = []
    for number in range(draw(st.integers(1, 10))):
        prompt = draw(st.lists(st.integers(0, 1), min_size=1, max_size=40))
        answer = draw(st.sampled_from((0, 1, 2, 5, 12, 40, 90)))
        request = EngineRequest(
            str(number),
            np.array(prompt, dtype=np.int32),
            np.arange(1_000, 1_000 + answer, dtype=np.int32),
            workload=f"turn-{number % 3}",
            scope=draw(st.sampled_from(("", "", "salt"))),
            transferred=draw(st.integers(0, 4)) == 4,
        )
        at_us = draw(times)
        actions.append((at_us, lambda engine, now, request=request: engine.submit(request, now)))
        if draw(st.integers(0, 2)) == 2:
            end_us = at_us + draw(times)
            actions.append((end_us, lambda engine, now, number=number: engine.abort(str(number), now)))
    actions += [
        (draw(times), lambda engine, now, policy=policy: engine.set_eviction(policy, now))
        for policy in draw(st.lists(st.sampled_from(EvictionPolicy), max_size=2))
    ]
    actions += [
        (draw(times), lambda engine, now, factor=factor: engine.set_slowdown(factor, now))
        for factor in draw(st.lists(st.sampled_from((1.0, 0.5, 7.3)), max_size=2))
    ]
    return sorted(actions, key=lambda action: action[0])


def told(batches: list[list[EngineEvent]]) -> list[object]:
    return [
        (
            type(event).__name__,
            getattr(event, "hashes", ()),
            getattr(event, "parent", None),
            getattr(event, "medium", None),
        )
        for batch in batches
        for event in (*batch, None)
    ]


def load_of(engine: Engine | NaiveEngine, now_us: int, like: dict[str, int]) -> dict[str, int]:
    load = engine.load(now_us)
    return load if isinstance(load, dict) else {name: getattr(load, name) for name in like}


def play(engine: Engine | NaiveEngine, actions: list[Action]) -> list[object]:
    outcomes = [act(engine, at_us) for at_us, act in actions]
    engine.advance(FOREVER)
    return outcomes


@settings(max_examples=150, deadline=None)
@given(CONFIGS, scripts(), st.lists(st.integers(0, 3_000_000), max_size=20), st.booleans())
def test_every_instant_is_that_of_the_twin(
    config: EngineConfig, script: list[Action], asks: list[int], tokens: bool
) -> None:
    like = NaiveEngine(config).load(0)
    ask = partial(load_of, like=like)
    actions = sorted([*script, *((at_us, ask) for at_us in asks)], key=lambda action: action[0])
    twin, engine = NaiveEngine(config), Engine(replace(config, token_progress=tokens))
    for mine, its in zip(play(engine, actions), play(twin, actions), strict=True):
        if isinstance(mine, dict) and isinstance(its, dict):
            assert abs(mine.pop("step_us") - its.pop("step_us")) <= 1, "rounded in another order"
        assert mine == its
    assert engine.take_progress() == [
        step for step in twin.progress if tokens or step.generated == 1 or step.finished
    ]
    assert told(engine.take_batches()) == told(twin.batches)


@settings(max_examples=80, deadline=None)
@given(CONFIGS, scripts(), st.lists(st.integers(0, 3_000_000), max_size=20), st.booleans())
def test_what_happens_does_not_depend_on_when_one_looks(
    config: EngineConfig, script: list[Action], asks: list[int], tokens: bool
) -> None:
    config = replace(config, token_progress=tokens)
    quiet, watched = Engine(config), Engine(config)
    outcomes = play(quiet, script)
    looks = sorted([*script, *((at_us, Engine.advance) for at_us in asks)], key=lambda action: action[0])
    seen = [act(watched, at_us) for at_us, act in looks if act is not Engine.advance or act(watched, at_us)]
    watched.advance(FOREVER)
    assert outcomes == seen
    assert quiet.take_progress() == watched.take_progress()
    assert told(quiet.take_batches()) == told(watched.take_batches())
    load = quiet.load(FOREVER)
    assert (load.running, load.waiting, load.used_tokens, load.decoding) == (0, 0, 0, 0)
    assert quiet.cache.dram_blocks <= quiet.cache.dram_capacity_blocks
    assert quiet.cache.dram_capacity_blocks * config.page_size == config.host_cache_tokens
    assert (load.waiting_tokens, load.waiting_uncached_tokens) == (0, 0)
    assert quiet.cache.free_blocks + quiet.cache.resident_blocks == quiet.cache.capacity_blocks
    assert quiet.next_deadline_us() is None


@settings(max_examples=60, deadline=None)
@given(CONFIGS, scripts())
def test_nothing_is_told_between_deadlines(config: EngineConfig, script: list[Action]) -> None:
    """Whoever wakes the engine at its deadlines alone learns of everything at its own instant."""
    engine = Engine(replace(config, token_progress=False))
    pending = [*script]
    engine.take_batches()
    while pending or engine.next_deadline_us() is not None:
        due_us = engine.next_deadline_us()
        if due_us is None or (pending and pending[0][0] < due_us):
            now_us, act = pending.pop(0)
            act(engine, now_us)
        else:
            now_us = due_us
            engine.advance(due_us - 1)
            assert not engine.take_progress()
            assert not engine.take_batches()
            engine.advance(due_us)
        assert all(step.at_us == now_us for step in engine.take_progress())
        engine.take_batches()


@pytest.mark.parametrize("at_us", range(290, 330))
def test_a_prompt_that_takes_no_time_joins_the_step_after_the_one_that_ended_before_it(at_us: int) -> None:
    """At some of these a step ends in the microsecond in which the prompt comes, before it."""
    config = EngineConfig(
        page_size=4,
        cache_tokens=160,
        max_running=3,
        max_queued=9,
        timing=TIMINGS[4],
        scheduling=Scheduling.TURNS,
        token_progress=False,
    )
    requests = ((133, "long", 40), (at_us, "short", 2))
    script = [
        (when, partial(_submit, EngineRequest(name, np.zeros(2, np.int32), np.arange(size, dtype=np.int32))))
        for when, name, size in requests
    ]
    twin, engine = NaiveEngine(config), Engine(config)
    assert play(engine, script) == play(twin, script)
    assert engine.take_progress() == [step for step in twin.progress if step.generated == 1 or step.finished]


def _submit(request: EngineRequest, engine: Engine | NaiveEngine, now_us: int) -> object:
    return engine.submit(request, now_us)
