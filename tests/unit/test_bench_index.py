"""The benchmark runs from end to end and gives every figure asked of it; what they are is not tested."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from bench.index import __main__ as tool
from bench.index import baselines, decision, document, edits, layouts, view_only
from bench.index.results import Results
from bench.index.tables import shape_for
from kvcompass.index import ShardTables

ASKED_FOR = (
    *(f"decision_us.{what}.{p}" for what in ("tokens", "keys") for p in ("p50", "p99")),
    *("lookup48_us.p50", "insert_us.p50_85", "update_us.p50", "remove_us.p50"),
    *("apply_per_s.kernel", "apply_per_s.wire"),
    *("view_bits_per_entry.default", "view_bits_per_entry.paper", "writer_bits_per_entry"),
    *("false_hit_rate.default", "false_hit_rate.paper", "false_hit_rate.filtered"),
    *("baselines.open_addressing.insert_us.p50", "baselines.hash_map.lookup48_us.p50"),
)


def test_every_figure_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "FLEETS", ((8, 64),))
    monkeypatch.setattr(edits, "SAMPLE", 10_000)
    monkeypatch.setattr(decision, "ASKED", 40)
    monkeypatch.setattr(decision, "COLD", 200)
    monkeypatch.setattr(layouts, "STRANGERS", 20_000)
    monkeypatch.setattr(baselines, "BULK", 1_000)
    out = tmp_path / "out" / "index.json"
    monkeypatch.setattr("sys.argv", ["index", "--entries", "16e3", "--json", str(out)])
    tool.main()
    found = json.loads(out.read_text("utf-8"))
    for path in ASKED_FOR:
        value = found
        for name in path.split("."):
            value = value[name]
        assert math.isfinite(value) and value >= 0, path
    assert 47 < found["view_bits_per_entry"]["default"] < 49
    assert 37 < found["view_bits_per_entry"]["paper"] < 40
    assert found["false_hit_rate"]["paper"] == pytest.approx(0.95, abs=0.02)
    assert found["false_hit_rate"]["default"] < 0.01
    assert "| view, the paper's layout | 3" in document.text(found, large_view())


def large_view() -> dict[str, Any]:
    results = Results()
    view_only.measure(20_000, 10_000, results)
    found: dict[str, Any] = json.loads(json.dumps(results.json))["view_only"]
    return found


def test_a_view_of_many_shards_is_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_only, "SHARD_ENTRIES", 5_000)
    found = large_view()
    assert (found["entries"], found["inserted"], found["missing"]) == (20_000, 10_000, 0)
    assert found["occupancy"] == pytest.approx(0.95, abs=0.01)


@pytest.mark.parametrize("layout", [(32, "fingerprints"), (64, "fingerprints"), (32, "paper")])
def test_a_shape_is_full_at_its_occupancy(layout: tuple[int, str]) -> None:
    shape = shape_for(10_000, 0.95, value_bits=layout[0], layout=layout[1])
    assert 10_000 / ShardTables(shape, 0, random_seed=1).slots == pytest.approx(0.95, abs=0.002)
