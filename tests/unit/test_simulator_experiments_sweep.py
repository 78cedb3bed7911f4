"""Sweeps: what is kept, what is run, and what happens to a process that dies."""

import json
import multiprocessing
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest

from simulator.errors import SimulationError
from simulator.experiments import store as store_module
from simulator.experiments.cell import Cell, Setting, digest
from simulator.experiments.document import as_json, runs_from
from simulator.experiments.run import Finished
from simulator.experiments.store import CellStore, figures_from, write_whole
from simulator.experiments.study import Grid, cells, rows_of
from simulator.experiments.sweep import run_cells
from simulator.results.rows import rows
from simulator.workloads import Arrivals
from tests.models.simulated_runs import PLAIN

SETTING = Setting(fleet="testbed-14", requests=60, warm_up=10)


class Told:
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.missing: Sequence[Cell] = ()
        self.ended: dict[Cell, list[int]] = {}
        self.done: list[Cell] = []

    def planned(self, cells: Sequence[Cell], missing: Sequence[Cell]) -> None:
        self.missing = missing

    def reached(self, cell: Cell, ended: int) -> None:
        self.ended.setdefault(cell, []).append(ended)

    def finished(self, cell: Cell) -> None:
        self.done.append(cell)


class Killer(Told):
    """Kills the process of the first cell that it hears of."""

    def reached(self, cell: Cell, ended: int) -> None:
        super().reached(cell, ended)
        if len(self.ended) == 1 and len(self.ended[cell]) == 1:
            child = next(each for each in multiprocessing.active_children() if each.name == cell.name)
            child.kill()


def grid(setting: Setting = SETTING, seeds: Sequence[int] = (1, 2)) -> list[Cell]:
    return cells(
        setting,
        Grid(policies=("random", "round_robin"), loads=(0.5,), seeds=seeds),
        dict.fromkeys(seeds, 50.0),
    )


def test_a_grid_has_every_combination_once() -> None:
    found = cells(SETTING, Grid(("random", "regional"), loads=(0.5, 2.0), seeds=(4, 5)), {4: 50.0, 5: 60.0})
    assert len(set(found)) == len(found) == 8
    assert {(cell.seed, cell.load, cell.rate_per_s) for cell in found} == {
        (4, 0.5, 25.0),
        (4, 2.0, 100.0),
        (5, 0.5, 30.0),
        (5, 2.0, 120.0),
    }
    assert len({cell.name for cell in found}) == 8
    assert len({digest(cell.inputs()) for cell in found}) == 8


def test_finished_cells_are_returned_in_the_order_asked_for(tmp_path: Path) -> None:
    wanted, told = grid(), Told()
    swept = run_cells(wanted, CellStore(tmp_path), told, jobs=1)
    assert [each.cell for each in swept.finished] == wanted == told.done == list(told.missing)
    assert all(told.ended[cell][-1] >= 70 for cell in wanted)
    again = run_cells(wanted[::-1], CellStore(tmp_path), later := Told(), jobs=1)
    assert list(again.finished) == list(swept.finished)[::-1]
    assert later.missing == []
    assert later.done == []


@pytest.mark.timeout(300)
def test_a_process_that_is_killed_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    wanted = grid(Setting(fleet="testbed-14", requests=1_000, warm_up=10), seeds=(1,))
    swept = run_cells(wanted, CellStore(tmp_path), told := Killer(), jobs=2)
    ((killed, why),) = swept.failures
    assert "its process was killed; was there memory enough?" in why
    assert [each.cell for each in swept.finished] == [cell for cell in wanted if cell != killed]
    assert set(told.done) == set(wanted)


def test_a_folder_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(SimulationError, match="choose another folder"):
        CellStore(Path("/proc/nowhere"))


def test_a_process_that_finds_other_code_than_its_parent_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = CellStore(tmp_path)
    monkeypatch.setattr(kept, "code", "what it was when the sweep began")
    swept = run_cells(grid(seeds=(1,)), kept, Told(), jobs=2)
    assert [why for _, why in swept.failures] == 2 * [
        "the code was changed after the sweep began; run the same again"
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_finished_cell_that_disappears_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = CellStore(tmp_path)
    monkeypatch.setattr(CellStore, "put", lambda _self, _finished: None)
    with pytest.raises(SimulationError, match=r"random-1 was there and is gone"):
        run_cells(grid(seeds=(1,)), kept, Told(), jobs=1)


def test_inputs_have_the_contents_of_the_files_they_name(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    cell = Cell(Setting(workload=str(trace)), "random", 1.0, None, 1)
    trace.write_text("one")
    before = digest(cell.inputs())
    trace.write_text("two")
    assert digest(cell.inputs()) != before


def test_inputs_of_mixed_have_the_contents_of_its_texts(tmp_path: Path) -> None:
    cell = Cell(Setting(workload="mixed", data=str(tmp_path)), "random", 1.0, None, 1)
    found = [digest(cell.inputs())]
    for name in ("text/mbpp/one.jsonl", "text/loogle/two.jsonl", "tokenizer/smollm2_tokenizer.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("a")
        found.append(digest(cell.inputs()))
    assert len(set(found)) == 4


@pytest.mark.parametrize(("arrivals", "load"), [("poisson", 0.5), ("poisson", None), ("closed", None)])
def test_a_document_gives_the_rows_that_it_was_made_of(arrivals: Arrivals, load: float | None) -> None:
    setting = Setting(fleet="testbed-14", arrivals=arrivals, users=9)
    finished = [Finished(Cell(setting, "random", 25.0, load, 1), "mixed (synthetic)", PLAIN, 1.0)]
    found = rows_of(finished)
    document = json.loads(json.dumps(as_json(finished, found, {})))
    (row,) = rows(runs_from(document))
    assert (row.workload, row.load, row.policy) == (found[0].workload, found[0].load, found[0].policy)
    assert row.figures == found[0].figures


def test_the_code_has_one_digest_that_comments_do_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("kvcompass", "simulator/experiments", "simulator/results"):
        (tmp_path / package).mkdir(parents=True)
    source = tmp_path / "kvcompass" / "code.py"
    monkeypatch.setattr(store_module, "__file__", str(tmp_path / "simulator/experiments/store.py"))

    def digest_of(text: str) -> str:
        source.write_text(text)
        return store_module.code_digest.__wrapped__()  # type: ignore[no-any-return]

    plain = digest_of("a = 1\n")
    assert digest_of("# why\na  =  1\n") == plain
    assert digest_of("a = 2\n") != plain
    (tmp_path / "simulator/results/plot.py").write_text("colour = 'red'\n")
    assert digest_of("a = 1\n") == plain


def test_figures_come_back_from_json_as_they_were(tmp_path: Path) -> None:
    (cell, *_) = grid()
    kept = CellStore(tmp_path)
    finished = run_cells([cell], kept, Told(), jobs=1).finished[0]
    assert figures_from(json.loads(json.dumps(asdict(finished.figures)))) == finished.figures
    assert CellStore(tmp_path).get(cell) == finished


def test_a_cell_with_other_figures_is_run_again_even_where_any_code_will_do(tmp_path: Path) -> None:
    (cell, *_) = grid()
    run_cells([cell], CellStore(tmp_path), Told(), jobs=1)
    (path,) = tmp_path.iterdir()
    whole = json.loads(path.read_text("utf-8"))
    for figures in ({"new": 1, **whole["figures"]}, {"requests": 60}):
        path.write_text(json.dumps({**whole, "figures": figures}), "utf-8")
        assert CellStore(tmp_path, any_code=True).get(cell) is None
    path.write_text(json.dumps(whole), "utf-8")
    assert CellStore(tmp_path, any_code=True).get(cell) is not None


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.json"
    write_whole(path, "before")

    def full(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("simulator.experiments.store.os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, "after")
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["x.json"]
