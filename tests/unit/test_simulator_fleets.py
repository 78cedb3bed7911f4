"""Fleets: the paper's numbers, the product's checks, and what a plan file becomes."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from kvcompass.engine_model import EvictionPolicy
from kvcompass.errors import KVCompassError, PlanError
from kvcompass.plan import assign_text, dump_plan, parse_plan
from simulator.errors import SimulationError
from simulator.fleets import FleetOptions, load_fleet
from simulator.fleets.latencies import DISTANCE_MS, DISTANCE_MS_PER_KM, ROUND_TRIPS_MS, round_trip_ms
from simulator.fleets.named import NAMED
from simulator.fleets.places import CLOUD_REGIONS, distance_km

EXAMPLE = Path(__file__).parents[2] / "deploy" / "plans" / "three-regions.toml"


def workers(name: str) -> dict[str, int]:
    plan = load_fleet(name).plan
    return {region: sum(worker.region == region for worker in plan.workers) for region in plan.regions}


@pytest.mark.parametrize("name", [*NAMED, "scale-40x5", "scale-130x64"])
def test_every_fleet_keeps_the_products_rules(name: str) -> None:
    fleet = load_fleet(name)
    plan = fleet.plan
    assert parse_plan(dump_plan(plan)) == plan
    assert {(worker.table, worker.slot) for worker in plan.workers} == {
        (worker.table, worker.slot) for worker in plan.workers if worker.table >= 0 and worker.slot >= 0
    }
    assert fleet.name == plan.fleet == name
    assert len(fleet.engines) == len(plan.workers)
    assert sum(fleet.origin_weights) == pytest.approx(1)
    assert {engine.page_size for engine in fleet.engines} == {plan.model.block_size}
    assert {edge.region for edge in plan.edges} == set(plan.regions)


def test_the_papers_large_fleets_have_its_workers() -> None:
    small = workers("paper-64")
    assert sum(small.values()) == 64
    assert sorted(small.values(), reverse=True)[:3] == [30, 13, 8]
    assert set(sorted(small.values())[:5]) == {2, 3}
    large = workers("paper-128")
    assert sum(large.values()) == 128
    assert len(large) == 16
    assert sorted(large.values(), reverse=True)[:7] == [26, 14, 12, 10, 10, 8, 8]
    assert set(sorted(large.values())[:9]) <= set(range(2, 8))


def test_the_papers_testbeds_have_its_workers_and_latencies() -> None:
    assert workers("testbed-14") == {"us": 8, "eu": 2, "asia": 4}
    us, eu, asia = load_fleet("testbed-14").plan.wan_ms
    assert (us[1], us[2], eu[2]) == (160, 126, 149)
    assert (eu[0], asia[0], asia[1]) == (160, 126, 149)
    assert workers("testbed-11") == {"pennsylvania": 2, "ohio": 4, "new-york": 1, "calgary": 4}
    near = load_fleet("testbed-11").plan.wan_ms
    eastern = [near[a][b] for a, b in combinations(range(3), 2)]
    to_calgary = [near[a][3] for a in range(3)]
    assert (min(eastern), max(eastern)) == (5.8, 16.6)
    assert (min(to_calgary), max(to_calgary)) == (24.9, 37.4)


def test_prefill_and_decode_are_apart_where_the_paper_has_them_apart() -> None:
    fleet = load_fleet("pd-10")
    assert (fleet.workers, len(fleet.decoders)) == (7, 3)
    assert {one.region for one in fleet.decoders} == {0, 1, 2}, "a decoder in each region that prefills"


@pytest.mark.parametrize("name", ["paper-64", "paper-128"])
def test_latencies_are_symmetric_and_the_other_reading_is_half(name: str) -> None:
    one_way = np.array(load_fleet(name).plan.wan_ms)
    by_the_letter = np.array(load_fleet(name, FleetOptions(wan="round_trip")).plan.wan_ms)
    assert (one_way == one_way.T).all()
    apart = ~np.eye(len(one_way), dtype=bool)
    assert one_way[apart] == pytest.approx(2 * by_the_letter[apart], abs=0.02)


def test_one_way_latencies_span_what_the_paper_says() -> None:
    """12 to 150 ms over 8 regions (5.3), to which half of CloudPing's round trips are nearest."""
    wan = np.array(load_fleet("paper-64").plan.wan_ms)
    apart = wan[~np.eye(8, dtype=bool)]
    assert 8 < apart.min() < 12
    assert 130 < apart.max() < 150


def test_distances_are_priced_by_the_line_through_what_was_measured() -> None:
    names = list(CLOUD_REGIONS)
    pairs = [(names[later], names[earlier]) for later in range(16) for earlier in range(later)]
    km = [distance_km(CLOUD_REGIONS[a], CLOUD_REGIONS[b]) for a, b in pairs]
    slope, base = np.polyfit(km, [round_trip_ms(a, b) for a, b in pairs], 1)
    assert pytest.approx(base, abs=0.1) == DISTANCE_MS
    assert pytest.approx(slope, rel=0.01) == DISTANCE_MS_PER_KM
    assert [len(row) for row in ROUND_TRIPS_MS] == list(range(16))
    light = 200_000 / 1_000  # km a millisecond in fibre
    assert all(round_trip_ms(a, b) > 2 * far / light for (a, b), far in zip(pairs, km, strict=True))


def test_a_scaled_fleet_spreads_its_workers_evenly() -> None:
    counts = workers("scale-130x64")
    assert sum(counts.values()) == 130
    assert set(counts.values()) == {2, 3}
    assert load_fleet("scale-1024x64").plan.tables == 64


def test_engines_are_what_the_paper_calibrates() -> None:
    engine = load_fleet("paper-64").engines[0]
    bytes_a_token = 131_072
    assert engine.cache_tokens == int(32e9 / bytes_a_token)
    assert engine.host_cache_tokens == int(128e9 / bytes_a_token)
    timing = engine.timing
    assert timing.prefill_us(0, 28_650) / 1e3 == pytest.approx(3_052, rel=0.001)
    assert timing.reload_us(1) == round(1e6 * bytes_a_token / 25e9)
    for name in ("paper-64", "testbed-14"):
        fleet = load_fleet(name)
        beta = fleet.plan.workers[0].prefill_ms_per_token
        assert fleet.engines[0].timing.prefill_us(0, 4_096) / 4_096e3 == pytest.approx(beta, rel=0.02)


def test_linear_rates_cost_each_token_the_same() -> None:
    fleet = load_fleet("paper-64", FleetOptions(timing="linear"))
    timing, beta = fleet.engines[0].timing, fleet.plan.workers[0].prefill_ms_per_token
    assert timing.prefill_us(0, 10_000) == round(1e3 * beta * 10_000)
    assert timing.prefill_us(20_000, 10_000) == timing.prefill_us(0, 10_000)
    assert timing.decode_ms_per_context_token == 0.0


def test_options_reach_plan_and_engines() -> None:
    options = FleetOptions(
        block_size=48,
        eviction=EvictionPolicy.LRU,
        length_policy="paper",
        queue_scale_ms=70.0,
        wan_charge="one_way",
        shards=2,
    )
    fleet = load_fleet("testbed-14", options)
    assert fleet.plan.model.block_size == fleet.engines[0].page_size == 48
    assert fleet.plan.lengths.policy == "paper"
    assert fleet.plan.lengths.quantum % 48 == 0
    assert fleet.engines[0].eviction is EvictionPolicy.LRU
    assert (fleet.plan.routing.queue_scale_ms, fleet.plan.routing.wan_charge) == (70.0, "one_way")
    assert fleet.plan.shards == 2
    assert load_fleet("testbed-14", FleetOptions(shards=9)).plan.shards == 3


def test_a_plan_file_is_taken_as_it_is() -> None:
    fleet = load_fleet(EXAMPLE)
    assert fleet.plan == parse_plan(assign_text(EXAMPLE.read_text("utf-8")))
    for worker, engine in zip(fleet.plan.workers, fleet.engines, strict=True):
        assert engine.page_size == fleet.plan.model.block_size
        mean_ms = engine.timing.prefill_us(0, 4_096) / 4_096e3
        assert mean_ms == pytest.approx(worker.prefill_ms_per_token, rel=0.02)
        assert engine.timing.reload_ms_per_token == worker.reload_ms_per_token


def test_an_engine_of_a_plan_is_as_fast_as_its_worker(tmp_path: Path) -> None:
    path = tmp_path / "fast.toml"
    given = "prefill_ms_per_token = 0.073\n"
    text = EXAMPLE.read_text("utf-8")
    assert given in text
    path.write_text(
        text.replace(given, "prefill_ms_per_token = 0.0365\ndecode_ms_per_context_token = 0.001\n", 1),
        "utf-8",
    )
    fleet = load_fleet(path)
    fast, usual = fleet.engines[0].timing, fleet.engines[1].timing
    assert fleet.plan.workers[0].prefill_ms_per_token == 0.0365
    assert (fast.decode_ms_per_context_token, usual.decode_ms_per_context_token) == (0.001, 0.00524 / 80)
    linear = load_fleet(path, FleetOptions(timing="linear"))
    assert {one.timing.decode_ms_per_context_token for one in linear.engines} == {0.0}
    assert {worker.context_ms_per_token for worker in linear.plan.workers} == {0.0}
    for tokens in (100, 30_000):
        assert fast.prefill_us(0, tokens) == pytest.approx(usual.prefill_us(0, tokens) / 2, rel=0.001)


@pytest.mark.parametrize("name", ["paper-65", "scale-8", "scale-3x4", "scale-100x65", "scale-4x0"])
def test_fleets_that_are_none_are_refused(name: str) -> None:
    with pytest.raises(SimulationError, match=name):
        load_fleet(name)


def test_a_faulty_plan_file_is_refused_with_all_its_faults(tmp_path: Path) -> None:
    with pytest.raises(KVCompassError, match="cannot be read"):
        load_fleet(tmp_path / "none.toml")
    path = tmp_path / "faulty.toml"
    path.write_text(EXAMPLE.read_text("utf-8").replace("block_size = 16 ", "block_size = 60 "), "utf-8")
    with pytest.raises(PlanError, match=r"lengths\.quantum"):
        load_fleet(path)
