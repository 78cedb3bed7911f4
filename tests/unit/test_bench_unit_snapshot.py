"""The benchmark of a unit's own snapshot measures what it says."""

from pathlib import Path

import pytest

from bench.unit_snapshot import fleet, measure


def test_a_fleet_has_so_many_keys_a_quarter_of_them_twice() -> None:
    plan, held = fleet(8_000)
    assert set(held) == {worker.id for worker in plan.workers}
    assert len({int(key) for keys, _ in held.values() for key in keys}) == 8_000
    assert sum(keys.size for keys, _ in held.values()) == pytest.approx(10_000, rel=0.05)


def test_figures_are_of_that_fleet(tmp_path: Path) -> None:
    found = measure(2_000, tmp_path)
    assert found["entries"] == 2_000
    assert 12 * 2_000 < found["file_bytes"] == (tmp_path / "unit.snapshot").stat().st_size < 12 * 2_200
    assert found["write_peak_bytes"] > 16 * 2_000
    assert found["restore_peak_bytes"] > found["file_bytes"]
    for name in ("copy_ms", "encode_ms", "file_ms", "restore_ms", "refill_ms"):
        assert found[name] > 0
    assert found["refill_over_restore"] == pytest.approx(found["refill_ms"] / found["restore_ms"])
