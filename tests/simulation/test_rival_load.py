"""Least loaded, the Oracle and the exact queues under the bounds."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_model import EngineConfig, Scheduling
from simulator.request import Request
from simulator.rivals.consistent_hash import CONSISTENT_HASH
from simulator.rivals.exact_queues import ExactQueues
from simulator.rivals.least_loaded import LEAST_LOADED
from simulator.rivals.oracle import ORACLE, Oracle
from simulator.rivals.prefill_queues import PrefillQueues
from simulator.rivals.random_choice import RANDOM
from simulator.router import Router, Site
from tests.simulation.rival_runs import LOCAL_MS, PAGE, Run, ask, small_fleet, text

PROMPT = 15 * PAGE
PREFILL_MS = EngineConfig().timing.prefill_us(0, PROMPT) / 1000.0


def _unshared(count: int, load: float, seed: int = 4) -> list[Request]:
    """Poisson arrivals at a share of what six engines can prefill, all prompts alike in length alone."""
    stream = np.random.Generator(np.random.PCG64(seed))
    at_ms = np.cumsum(stream.exponential(PREFILL_MS / 6 / load, count)) + 500.0
    return [ask(i, float(at_ms[i]), int(stream.integers(3)), text(i, PROMPT)) for i in range(count)]


def _peak(run: Run) -> float:
    """The busiest worker's computed tokens over the mean."""
    computed = run.column("prompt_tokens") - run.column("cached_tokens")
    per_worker = np.bincount(run.workers, weights=computed, minlength=6)
    return float(per_worker.max() / per_worker.mean())


def test_least_loaded_lets_nobody_wait_below_half_capacity_where_loads_are_known_at_once() -> None:
    fleet = small_fleet(wan_ms=LOCAL_MS)
    pairs = [ask(i, 500.0 + 80.0 * (i // 2), 0, text(i, PROMPT)) for i in range(100)]
    run = Run(LEAST_LOADED, pairs, fleet)
    assert run.first_token_ms.max() < PREFILL_MS + 4 * LOCAL_MS
    by_chance = Run(RANDOM, pairs, fleet)
    assert by_chance.first_token_ms.max() > 1.5 * PREFILL_MS


def test_least_loaded_computes_a_prefix_on_every_worker_that_it_comes_to() -> None:
    requests = [ask(i, 300.0 * i, i % 3, text(i % 4, 17 * PAGE), text(i, PAGE)) for i in range(60)]
    assert Run(LEAST_LOADED, requests).reused < 0.85 * Run(CONSISTENT_HASH, requests).reused


def test_least_loaded_spreads_a_burst_that_no_load_shows_yet() -> None:
    run = Run(
        LEAST_LOADED, [ask(i, 1_000.0, 0, text(i, PROMPT)) for i in range(24)], small_fleet(wan_ms=20.0)
    )
    assert np.bincount(run.workers, minlength=6).tolist() == [4] * 6


def test_the_oracle_balances_better_than_anybody_and_looks_at_nothing_else() -> None:
    requests = [
        ask(row, request.arrives_us / 1000.0, request.region, text(row, PAGE * (1 + 37 * row % 40)))
        for row, request in enumerate(_unshared(400, 0.8))
    ]
    oracle = _peak(Run(ORACLE, requests))
    assert oracle < 1.05
    assert oracle < min(_peak(Run(rival, requests)) for rival in (RANDOM, LEAST_LOADED, CONSISTENT_HASH))
    shared = [ask(i, 2_000.0 * i, 0, text("one", PROMPT), text(i, PAGE)) for i in range(12)]
    assert sorted(set(Run(ORACLE, shared).workers)) == list(range(6))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 40), st.integers(0, 5)), max_size=30), st.data())
def test_what_is_left_is_what_has_not_begun_and_half_of_what_has(
    steps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    site = Run(ORACLE, [ask(0, 0.0, 0, text(0, PAGE))]).router._site
    exact, now_us = ExactQueues(site), 0
    for request_id, (work_us, way_us, gap_us) in enumerate(steps):
        now_us += gap_us
        exact.queues.give(request_id, 0, work_us, now_us + way_us)
        if data.draw(st.booleans()):
            exact.queues.begun(data.draw(st.sampled_from(range(request_id + 1))), 0, now_us)
    load = SimpleNamespace(running=data.draw(st.integers(0, 9)), waiting=data.draw(st.integers(0, 9)))
    load.decoding = data.draw(st.integers(0, load.running))
    exact.engine = lambda _: SimpleNamespace(load=lambda _: load)  # type: ignore[assignment,method-assign]
    given_ = list(exact.queues.given[0].values())
    behind = load.waiting + sum(one.lands_us > now_us for one in given_)
    works = [one.work_us for one in reversed(given_)]
    begun = load.running - load.decoding
    assert exact._left_us(0, now_us) == sum(works[:behind]) + 0.5 * sum(works[behind : behind + begun])


def test_exact_queues_are_those_that_requests_meet() -> None:
    """Where engines prefill one after another, a prefill ends to the microsecond when the ledger says."""
    requests = [
        ask(i, 6.0 * i, 0, text(i % 40, 10 * PAGE), text(("own", i), PAGE * (1 + i % 7))) for i in range(120)
    ]
    expected: dict[int, int] = {}

    class Watched(PrefillQueues):
        def give(self, request_id: int, worker: int, work_us: int, lands_us: int) -> None:
            super().give(request_id, worker, work_us, lands_us)
            expected[request_id] = self.given[worker][request_id].ends_us

    def make(site: Site) -> Router:
        router = Oracle(site)
        router._exact.queues = Watched(site.fleet)
        return router

    run = Run(replace(ORACLE, make=make), requests)
    back_us = [round(1000.0 * run.fleet.plan.wan_ms[region][0]) for region in run.regions]
    ended_us = run.column("first_token_us") - np.array([back_us[worker] for worker in run.workers])
    assert sorted(expected) == list(range(120))
    assert all(abs(int(ended_us[row]) - ends_us) <= 2 for row, ends_us in expected.items())
    assert run.reused
    assert (ended_us - run.column("submitted_us")).max() > 3 * 1000 * PREFILL_MS


def test_engines_that_decode_beside_prefills_are_asked_what_is_left() -> None:
    """Under continuous batching prefills end later than alone; the ledger then says no less than is left."""
    engine = EngineConfig(page_size=PAGE, scheduling=Scheduling.CHUNKED, max_running=4)
    requests = [ask(i, 30.0 * i, 0, text(i, PROMPT), answer=200) for i in range(120)]
    fleet = small_fleet(engine, wan_ms=LOCAL_MS)
    oracle, by_chance = Run(ORACLE, requests, fleet), Run(RANDOM, requests, fleet)
    assert np.percentile(oracle.first_token_ms, 99) < np.percentile(by_chance.first_token_ms, 99)
    assert _peak(oracle) < 1.1
