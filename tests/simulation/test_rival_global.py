"""Those that look at the whole world: PlanetServe, the Central Directory and the clairvoyant bound."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored
from kvcompass.engine_model.model_load import QueueLoad
from kvcompass.engine_model.token_chain import TokenChain
from kvcompass.roles.queue_estimate import QueueEstimate
from simulator.reading import Reading
from simulator.request import Request
from simulator.rivals.central_directory import CENTRAL_DIRECTORY, best_place
from simulator.rivals.chunk_names import chunk_names
from simulator.rivals.clairvoyant import CLAIRVOYANT, Clairvoyant
from simulator.rivals.joint_choice import JointChoice
from simulator.rivals.lagged_holders import CHANGE_BYTES
from simulator.rivals.least_loaded import LEAST_LOADED
from simulator.rivals.planetserve import PLANETSERVE, _Edge, choose
from simulator.rivals.registry import RIVALS
from simulator.router import Rival
from tests.simulation.rival_runs import LOCAL_MS, PAGE, Run, ask, small_fleet, text


def _shared(count: int, gap_ms: float, families: int = 12, pages: int = 30) -> list[Request]:
    """Families that all regions use alike."""
    stream = np.random.Generator(np.random.PCG64(8))
    return [
        ask(
            i,
            gap_ms * i,
            int(stream.integers(3)),
            text(int(stream.integers(families)), pages * PAGE),
            text(i, 2 * PAGE),
            answer=20,
        )
        for i in range(count)
    ]


# --- PlanetServe ----------------------------------------------------------------------------------


@given(
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.lists(st.sampled_from([1.0, 2.0, 5.0, 9.0]), min_size=6, max_size=6),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
)
@settings(max_examples=400)
def test_planetserve_takes_the_longest_match_that_is_not_among_the_most_loaded_fifth(
    blocks: list[int], batches: list[int], latencies: list[float], given_so_far: list[int]
) -> None:
    """Of six workers the most loaded one may be overloaded: five are at most 5/6 of them."""
    factors = [latency * count for latency, count in zip(latencies, batches, strict=True)]
    held = {worker: count for worker, count in enumerate(blocks) if count}
    chosen = choose(held, np.array(batches, float), np.array(factors), np.array(given_so_far, float))
    overloaded = {w for w in range(6) if batches[w] > 1 and sum(f < factors[w] for f in factors) >= 5}
    eligible = {w: (-held[w], factors[w], given_so_far[w]) for w in held if w not in overloaded}
    if eligible:
        assert eligible[chosen] == min(eligible.values())
    else:
        assert (factors[chosen], given_so_far[chosen]) == min(zip(factors, given_so_far, strict=True))


def test_planetserve_finds_what_any_region_holds() -> None:
    requests = _shared(150, 250.0)
    run = Run(PLANETSERVE, requests)
    assert run.reused >= 0.9 * (150 - 12) * 30 * PAGE
    assert run.crossed > 0.3


def test_planetserve_takes_latencies_that_an_edge_has_not_measured_for_average() -> None:
    """Else a worker that is new to an edge would look idle, whatever waits there."""
    edge = _Edge(3, 1)
    assert edge.recent_ms().tolist() == [1.0, 1.0, 1.0]
    edge.latency_ms[:] = 10.0, 0.0, 30.0
    assert edge.recent_ms().tolist() == [10.0, 20.0, 30.0]


def test_planetserve_crosses_oceans_in_a_quiet_world() -> None:
    """Whoever was given least is next, wherever it is; and two blocks elsewhere are worth any way."""
    requests = [ask(i, 800.0 * i, 0, text(i, 10 * PAGE)) for i in range(30)]
    run, local = Run(PLANETSERVE, requests), Run(LEAST_LOADED, requests)
    assert run.crossed > 0.5
    assert local.crossed < 0.1
    assert np.median(run.first_token_ms) > np.median(local.first_token_ms) + 200.0
    asked_again = [ask(i, 3_000.0 * i, i, text("short", 2 * PAGE), text(i, 10)) for i in range(3)]
    assert len(set(Run(PLANETSERVE, asked_again).workers)) == 1


def test_planetserve_goes_on_to_a_shorter_match_when_the_holder_is_overloaded() -> None:
    """One family, its holder first; once that is among the most loaded the burst goes where nothing waits."""
    warm = [ask(i, 600.0 * i, i % 3, text(("warm", i), 10 * PAGE)) for i in range(30)]
    burst = [ask(i, 20_000.0 + i, 0, text(("warm", 0), 10 * PAGE), text(i, 20 * PAGE)) for i in range(30, 60)]
    run = Run(PLANETSERVE, [*warm, *burst])
    holder, taken = run.workers[0], run.workers[30:]
    assert taken[0] == holder
    assert 1 < taken.count(holder) < 15


# --- Central Directory ----------------------------------------------------------------------------


def test_the_coordinator_stands_where_the_ways_are_shortest() -> None:
    fleet = small_fleet()
    wan = np.array(fleet.plan.wan_ms)
    ways = [sum(w * (wan[o][r] + wan[r][o]) for o, w in enumerate(fleet.origin_weights)) for r in range(3)]
    assert best_place(fleet) == int(np.argmin(ways))


def test_every_request_pays_the_way_to_the_coordinator_and_back() -> None:
    run = Run(CENTRAL_DIRECTORY, _shared(60, 700.0))
    wan, place = run.fleet.plan.wan_ms, run.router.place
    for row in range(60):
        origin, target = int(run.column("region")[row]), run.regions[run.workers[row]]
        took_us = run.column("submitted_us")[row] - run.column("arrived_us")[row]
        assert abs(took_us - 1000.0 * (wan[origin][place] + wan[place][origin] + wan[origin][target])) < 4


def test_the_coordinator_is_sent_every_block_that_comes_or_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    router = Run(CENTRAL_DIRECTORY, _shared(1, 1.0)).router
    sizes: list[int] = []
    monkeypatch.setattr(router, "_send", lambda action, size, *args: sizes.append(size))
    tokens = text("three blocks", 3 * PAGE)
    stored = BlockStored((7, 8, 9), None, tokens, PAGE, "GPU")
    router.cache_events(0, [stored, BlockRemoved((8, 9), "GPU"), AllBlocksCleared()])
    assert sizes == [5 * CHANGE_BYTES]


def test_the_coordinator_counts_on_a_full_engine_as_the_products_agents_do() -> None:
    """Nothing waits there, and the next request will: for one of the recent mean, at the measured rate."""
    router = Run(CENTRAL_DIRECTORY, _shared(1, 1.0)).router
    router._queues.floor_us[:] = 0.0
    for prefilled in (0, 10_000):
        full = QueueLoad(4, 0, 99_000, 100_000, 4, 0, prefilled, prefilled * 300)
        router._hear_loads([(0, Reading(full, lambda *_: True, 0, 0))])
    chain = text("a new prompt", 30 * PAGE)
    router._hear_events(1, [BlockStored((7,), None, chain, 30 * PAGE, "GPU")])
    agent = QueueEstimate(router._site.fleet.plan.workers[0].prefill_ms_per_token, 1)
    assert router._queues.floor_us[0] == pytest.approx(agent.mean_uncached_tokens * 300)
    assert router._estimates[1].mean_uncached_tokens > agent.mean_uncached_tokens
    assert not router._queues.floor_us[1:].any()
    assert router._choice.context_tokens[0] == 99_000


@pytest.mark.parametrize("tried", [[], [1]])
def test_workers_of_equal_score_are_taken_in_turns(tried: list[int]) -> None:
    choice = JointChoice(small_fleet(), PAGE)
    idle = np.zeros(6)
    taken = [choice.choose(origin, 1_000, [], {}, idle, tried).worker for origin in (0, 1, 0, 2) * 20]
    shares = np.bincount(taken, minlength=6).tolist()
    assert shares == ([40, 0, 10, 10, 10, 10] if tried else [20, 20, 10, 10, 10, 10])


def test_a_directory_next_door_is_as_good_as_knowing_everything() -> None:
    near = small_fleet(wan_ms=LOCAL_MS)
    requests = _shared(100, 300.0)
    directory, bound = Run(CENTRAL_DIRECTORY, requests, near), Run(CLAIRVOYANT, requests, near)
    assert directory.reused == bound.reused
    assert directory.first_token_ms.mean() < bound.first_token_ms.mean() + 3 * LOCAL_MS
    assert (directory.column("claimed_tokens") <= directory.column("cached_tokens")).all()


def test_a_directory_is_a_round_trip_behind_for_short_prompts_far_from_it() -> None:
    far = small_fleet(wan_ms=120.0)
    requests = [ask(i, 1_000.0 + 200.0 * i, 2, text(i, 100)) for i in range(40)]
    directory, local = Run(CENTRAL_DIRECTORY, requests, far), Run(LEAST_LOADED, requests, far)
    assert directory.router.place != 2
    assert np.median(directory.first_token_ms) > np.median(local.first_token_ms) + 230.0


# --- Clairvoyant ----------------------------------------------------------------------------------


class _Twin(Clairvoyant):
    """Checks that nobody scores better than the worker chosen (paper 3.4, decision 0309), plainly."""

    crossings = 0

    def _place(self, request: Request, tried: list[int]) -> None:
        plan, here = self._site.fleet.plan, self._site.here
        queue_ms = self._exact.remaining_us() / 1000.0
        price = min(plan.routing.capacity_price_max, queue_ms.min() / plan.routing.queue_scale_ms)
        names = chunk_names(request.prompt, PAGE)
        reusable = (len(request.prompt) - 1) // PAGE
        coming = self._choice._coming.shared(names)
        scores = []
        for worker, one in enumerate(plan.workers):
            region = plan.region_index(one.region)
            cache = self._exact.engine(worker).cache
            held = cache.match(TokenChain(request.prompt, PAGE), reusable)
            match = max(held, min(coming.get(worker, 0), reusable)) * PAGE
            scores.append(
                plan.wan_ms[here][region]
                + plan.wan_ms[region][here]
                + queue_ms[worker]
                + (1.0 + price) * one.prefill_ms_per_token * (len(request.prompt) - match)
                + plan.routing.decode_tokens
                * one.context_ms_per_token
                * self._exact.engine(worker).load(self._site.now_us).used_tokens
            )
        super()._place(request, tried)
        chosen = self._choice._names[request.id][1]
        assert scores[chosen] <= min(scores) + 1e-5
        _Twin.crossings += self._site.fleet.region_of(chosen) != here


def test_the_bound_takes_a_worker_of_least_score() -> None:
    _Twin.crossings = 0
    Run(Rival("clairvoyant", _Twin, "twin", is_bound=True), _shared(200, 25.0, pages=80))
    assert 20 < _Twin.crossings < 180


@pytest.mark.parametrize(("gap_ms", "pages"), [(150.0, 30), (40.0, 60)])
def test_no_policy_is_better_than_the_bound(gap_ms: float, pages: int) -> None:
    requests = _shared(150, gap_ms, pages=pages)
    bound = Run(CLAIRVOYANT, requests).first_token_ms.mean()
    policies = [rival for rival in RIVALS.values() if not rival.is_bound]
    others = {rival.name: Run(rival, requests).first_token_ms.mean() for rival in policies}
    assert min(others.values()) >= 0.99 * bound, others
