"""Facts about recorded data, by way of the loaders. They need the folder that KVCOMPASS_DATA names."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from simulator.fleets import load_fleet
from simulator.fleets.latencies import ROUND_TRIPS_MS
from simulator.fleets.places import CLOUD_REGIONS
from simulator.request import Request
from simulator.workloads import WorkloadOptions, build_source, build_workload
from simulator.workloads.remote_only import METROS, UNIFORM, first_turn_prefixes, remote_only
from simulator.workloads.reuse import EndlessCache

pytestmark = pytest.mark.data
FLEET = load_fleet("paper-64")


@pytest.fixture
def data() -> Path:
    folder = os.environ.get("KVCOMPASS_DATA")
    if not folder:
        pytest.skip("KVCOMPASS_DATA is not set")
    return Path(folder)


def replayed(name: str, data: Path) -> Iterator[Request]:
    options = WorkloadOptions(data=data)
    source = build_source(name, fleet=FLEET, rate_per_s=100, seed=1, arrivals="recorded", options=options)
    return iter(source.next, None)


def test_the_mooncake_trace_has_its_ideal_hit_ratios_lengths_and_first_turns(data: Path) -> None:
    cache = EndlessCache(512)
    lengths, answers, sessions = [], [], set()
    for one in replayed("mooncake", data):
        cache.ask(one.prompt)
        lengths.append(one.prompt.size)
        answers.append(one.answer.size)
        sessions.add(one.family)
    assert len(lengths) == 12_031
    assert (cache.reuse.reused_blocks, cache.reuse.blocks) == (105_592, 276_491)
    assert round(105_592 / 276_491, 4) == 0.3819
    assert round(cache.reuse.ratio, 4) == 0.3734
    assert round(np.mean(lengths)) == 12_035
    assert np.median(lengths) == 6_909
    assert round(np.quantile(lengths, 0.99)) == 85_400
    assert round(np.mean(answers), 1) == 342.6
    assert len(sessions) == 8_349


def test_part_blocks_of_the_mooncake_trace_repeat_too(data: Path) -> None:
    """The ratio of all blocks, part filled last ones included, is one of ids, not of content."""
    seen: set[int] = set()
    hits = blocks = 0
    for line in (data / "traces" / "mooncake_conversation_trace.jsonl").open():
        ids = json.loads(line)["hash_ids"]
        hits += next((i for i, one in enumerate(ids) if one not in seen), len(ids))
        blocks += len(ids)
        seen.update(ids)
    assert round(hits / blocks, 4) == 0.3664


def test_follow_ups_start_where_their_session_did(data: Path) -> None:
    regions: dict[str, set[int]] = {}
    for one in replayed("mooncake", data):
        regions.setdefault(one.family, set()).add(one.region)
    assert {len(found) for found in regions.values()} == {1}


def test_the_recorded_rate_is_scaled_to_the_one_asked_for(data: Path) -> None:
    arrivals = [one.arrives_us for one in replayed("mooncake", data)]
    assert arrivals == sorted(arrivals)
    assert 12_031e6 / (arrivals[-1] - arrivals[0]) == pytest.approx(100, rel=1e-6)


@pytest.mark.parametrize(("name", "rows"), [("azure-conv", 19_366), ("azure-code", 8_819)])
def test_azure_traces_are_read_whole(name: str, rows: int, data: Path) -> None:
    assert sum(1 for _ in replayed(name, data)) == rows


def test_appendix_d_on_the_mooncake_conversations(data: Path) -> None:
    prefixes = first_turn_prefixes(data / "traces" / "mooncake_conversation_trace.jsonl")
    by_population = remote_only(prefixes, list(METROS.values()))
    evenly = remote_only(prefixes, UNIFORM)
    assert (by_population.cold, by_population.hits) == (6_047, 948)
    assert 0.86 <= by_population.remote_share <= evenly.remote_share <= 0.91
    assert by_population.shared_volume > 0.92


def test_mixed_of_the_texts_is_like_the_synthetic_one(data: Path) -> None:
    def means(options: WorkloadOptions) -> dict[str, float]:
        workload = build_workload("mixed", fleet=FLEET, seed=1, options=options)
        sizes: dict[str, list[int]] = {}
        for _ in range(20_000):
            turn = workload.opening(0, 0)
            assert turn is not None
            sizes.setdefault(turn.request.category, []).append(turn.request.prompt.size)
        return {kind: float(np.mean(found)) for kind, found in sizes.items()}

    texts, synthetic = means(WorkloadOptions(0, data=data)), means(WorkloadOptions(0))
    for kind, mean in texts.items():
        assert synthetic[kind] == pytest.approx(mean, rel=0.15), kind


def test_the_table_of_round_trips_is_cloudpings(data: Path) -> None:
    measured = json.loads((data / "latency" / "cloudping_p50_1y_2025-05-29.json").read_text())["data"]
    names = list(CLOUD_REGIONS)
    for later, row in enumerate(ROUND_TRIPS_MS):
        for earlier, ms in enumerate(row):
            a, b = names[later], names[earlier]
            assert ms == pytest.approx((measured[a][b] + measured[b][a]) / 2, abs=0.051)
