"""Runs that are worse off, beside those that are not."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console

from simulator.experiments import degraded
from simulator.experiments.cell import Setting
from simulator.experiments.store import CellStore
from tests.models.simulated_runs import PLAIN

TINY = Setting(fleet="testbed-14", requests=40, warm_up=10, faithful=True)


def test_differences_are_those_of_each_seed(tmp_path: Path) -> None:
    store, console = CellStore(tmp_path / "runs"), Console(quiet=True)
    document = degraded.run(TINY, (1, 2), store, console, jobs=1)
    assert not document["failures"]
    table = [degraded._line_from(each) for each in json.loads(json.dumps(document))["lines"]]
    assert [line.way for line in table] == list(degraded.WAYS)
    assert table[0].lost_points.value == 0.0
    assert table[0].p99_ratio.value == 1.0
    text = degraded.page(document, table)
    for way in degraded.WAYS:
        assert f"| {way.name} |" in text
    runs = sorted((tmp_path / "runs").glob("*.json"))
    assert len(runs) == 2 * len(degraded.WAYS)
    # Each way was run as it says, and no run stands for another.
    asked = {json.dumps(json.loads(path.read_text())["inputs"]["setting"]["impairment"]) for path in runs}
    assert asked == {json.dumps(asdict(way.impairment)) for way in degraded.WAYS}


def test_points_lost_are_positive_where_less_is_reused() -> None:
    base = replace(PLAIN, reused_tokens=60, recomputed_tokens=40)
    worse = replace(PLAIN, reused_tokens=50, recomputed_tokens=50)
    table = degraded.lines({degraded.WAYS[0].name: {1: base}, degraded.WAYS[1].name: {1: worse}})
    assert [line.lost_points.value for line in table] == [0.0, 10.0]


def test_a_seed_without_a_sound_run_is_left_out() -> None:
    first, second = (way.name for way in degraded.WAYS[:2])
    assert degraded.lines({second: {1: PLAIN}}) == []
    table = degraded.lines({first: {1: PLAIN}, second: {1: PLAIN, 2: PLAIN}})
    assert [line.hit_pct.seeds for line in table] == [1, 1]


@pytest.mark.parametrize("text", [None, "no JSON", "{}"])
def test_what_is_no_document_is_named(
    tmp_path: Path, text: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "degraded.json"
    if text is not None:
        path.write_text(text, "utf-8")
    assert degraded.main(["--write-docs", str(path)]) == 2
    assert f"{path}: no document of this experiment" in capsys.readouterr().err
