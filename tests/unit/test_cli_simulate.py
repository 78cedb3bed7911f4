"""`kvcompass simulate` from outside."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli.__main__ import main
from simulator.errors import SimulationError
from simulator.experiments import store, sweep
from simulator.experiments.cell import Cell
from simulator.experiments.policies import POLICIES
from simulator.experiments.run import Finished

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "--fleet",
    "testbed-14",
    "--requests",
    "120",
    "--warm-up",
    "30",
    "--seconds",
    "0",
    "0",
    "--jobs",
    "1",
]
PNG = b"\x89PNG\r\n\x1a\n"


def simulate(*arguments: str | Path) -> int:
    return main(["simulate", *SMALL, *map(str, arguments)])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_it_prints_a_table_and_writes_figures_and_a_plot(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, plot = tmp_path / "new" / "x.json", tmp_path / "x.png"
    assert simulate("--policy", "random", "round_robin", "--json", figures, "--png", plot) == 0
    shown = capsys.readouterr().out
    document = json.loads(figures.read_text("utf-8"))
    assert plot.read_bytes().startswith(PNG)
    assert [row["policy"] for row in document["rows"]] == ["random", "round_robin"]
    for row, run in zip(document["rows"], document["runs"], strict=True):
        assert run["figures"]["requests"] == 120
        assert run["inputs"]["setting"]["warm_up"] == 30
        assert run["inputs"]["setting"]["window_s"] == 0
        assert run["inputs"]["load"] == 0.9
        rate = 0.9 * document["no_reuse_capacity"]["mixed"]["1"]["rate_per_s"]
        assert run["inputs"]["rate_per_s"] == pytest.approx(rate)
        assert row["figures"]["ttft_p50_ms"]["value"] == run["figures"]["ttft_ms"]["p50"]
        assert f"{run['figures']['ttft_ms']['p50']:,.0f}" in shown
    assert "mixed, 0.9 x no-reuse capacity" in shown
    assert "round robin" in shown
    assert "Measured: 120 requests in " in shown
    assert document["code"] == store.code_digest()
    assert document["machine"]["cpus"] == os.cpu_count()


def test_a_rate_needs_no_capacity_and_a_closed_loop_has_users(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "x.json"
    assert simulate("--policy", "random", "--rate", "20", "--json", figures) == 0
    document = json.loads(figures.read_text("utf-8"))
    assert document["no_reuse_capacity"] == {}
    assert document["runs"][0]["figures"]["offered_per_s"] == pytest.approx(20, rel=0.5)
    assert simulate("--policy", "random", "--arrivals", "closed", "--users", "7") == 0
    assert "mixed, 7 users" in capsys.readouterr().out


def test_the_same_seed_gives_the_same_figures_and_another_does_not(tmp_path: Path) -> None:
    found = []
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        path = tmp_path / f"{name}.json"
        assert simulate("--policy", "random", "--seed", seed, "--json", path) == 0
        found.append(json.loads(path.read_text("utf-8"))["runs"][0]["figures"])
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--fleet", "nowhere"], r"--fleet: 'nowhere' is no fleet: take .*paper-64"),
        (["--fleet", "gone.toml"], r"--fleet: gone.toml: cannot be read: No such file"),
        (["--workload", "nothing"], r"--workload: 'nothing' .*mixed"),
        (["--workload", "mixd"], r"--workload: 'mixd' is no workload: .*ending in .jsonl, .json, .csv$"),
        (["--tokenizer", "x.json"], r"--tokenizer: mixed has no texts of yours"),
        (["--arrivals", "recorded"], r"--arrivals: mixed was not recorded"),
        (["--policy", "best"], r"--policy: 'best' is no policy: take kvcompass, .*random"),
        (["--load", "0.5", "0.9"], r"--load: give one, or add --sweep"),
        (["--sweep", "--seed", "1", "1"], r"--seed: one is given twice; leave one out"),
        (["--seed", "1", "2"], r"--seed: give one, or add --sweep"),
        (["--load", "0.5", "--rate", "3"], r"--load: give this or --rate, not both"),
        (["--arrivals", "closed", "--rate", "3"], r"--arrivals: closed: .*leave --load and --rate out"),
        (["--json", "/proc/nowhere/x.json"], r"--json: /proc/nowhere: cannot be made: .*choose another"),
        (["--png", "x.xyz"], r"--png: x.xyz: cannot be written: no kind of picture; name it .png, "),
        (["--png", "x"], r"--png: x: cannot be written: no kind of picture; name it .png, "),
        (["--png", "/proc"], r"--png: /proc: cannot be written; choose another file"),
        (["--out-dir", "/proc/nowhere"], r"--out-dir: /proc/nowhere: cannot be written to: .*another folder"),
    ],
)
def test_errors_name_the_option_and_the_fix(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate("--policy", "random", *arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(f"kvcompass simulate: {said}", line), line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--load", "0"], "must be above 0"),
        (["--load", "nan"], "must be above 0"),
        (["--load", "abc"], "'abc' is not a number"),
        (["--rate", "-1"], "must be above 0"),
        (["--requests", "0"], "must be at least 1"),
        (["--requests", "1.5"], "'1.5' is not a whole number"),
        (["--warm-up", "-1"], "must not be negative"),
        (["--jobs", "0"], "must be at least 1"),
    ],
)
def test_numbers_out_of_bounds_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        simulate(*arguments)
    assert stopped.value.code == 2
    assert f"argument {arguments[0]}: {said}" in capsys.readouterr().err


TRACE = [
    {"at_ms": 500 * place, "prompt": [["manual", 3_000], 40], "answer": 20 + place} for place in range(6)
]


def trace(folder: Path, *more: str) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join([*map(json.dumps, TRACE), *more]) + "\n", "utf-8")
    return path


def test_a_recording_is_played_at_its_own_speed_unless_another_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "x.json"
    mine = ("--policy", "random", "--workload", trace(tmp_path), "--warm-up", "0", "--arrivals", "recorded")
    spans = []
    for speed in ((), ("--rate", "4.8")):
        assert simulate(*mine, *speed, "--json", figures) == 0
        (run,) = json.loads(figures.read_text("utf-8"))["runs"]
        spans.append(run["figures"]["seconds"])
        assert run["inputs"]["load"] is None
    assert spans == pytest.approx([2.5, 1.25])
    shown = capsys.readouterr().out
    assert "recorded times." in shown
    assert "recorded times 2 times as fast." in shown


@pytest.mark.parametrize("asked", [("--load", "0.9"), ("--rate", "3"), ("--arrivals", "recorded")])
def test_a_broken_trace_is_told_once_and_before_anything_is_run(
    asked: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "run_cell", never)
    broken = trace(tmp_path, '{"at_ms": 9000, "prompt": [["manual", "all"]], "answer": 5}')
    assert simulate("--policy", "random", "round_robin", "--workload", broken, *asked) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"kvcompass simulate: --workload: {broken}, line 7, prompt: "), line


def test_a_warm_up_longer_than_a_trace_is_told_with_the_options_that_mend_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate("--policy", "random", "--workload", trace(tmp_path), "--rate", "2") == 1
    assert "measure all of them with --warm-up 0 --seconds 0 0" in capsys.readouterr().out


def test_without_matplotlib_a_plot_is_refused_before_anything_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("simulator.results.plot.importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr(sweep, "run_cell", never)
    assert simulate("--png", tmp_path / "x.png") == 2
    assert "--png: plots need Matplotlib, which `make setup-simulator` installs" in capsys.readouterr().err


def test_the_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--list"]) == 0
    shown = capsys.readouterr().out
    for name in ("paper-64", "mixed", "kvcompass", "random"):
        assert re.search(rf"^  {name}\b", shown, re.MULTILINE), name
    described = re.findall(r"^  \w+: (.*)$", shown[shown.index("policies:") :], re.MULTILINE)
    assert len(described) == len(set(described)) == len(POLICIES)


def never(_cell: Cell, _on_progress: object = None) -> Finished:
    raise AssertionError("a finished run was run again")


def test_a_sweep_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, figures = tmp_path / "cells", tmp_path / "x.json"
    grid = ("--sweep", "--policy", "random", "--load", "0.5", "1.2", "--seed", "1", "2")
    assert simulate(*grid, "--out-dir", folder, "--json", figures) == 0
    first = files(folder)
    assert len(first) == 4
    assert len(json.loads(figures.read_text("utf-8"))["rows"]) == 2

    with monkeypatch.context() as patched:
        patched.setattr(sweep, "run_cell", never)
        assert simulate(*grid, "--out-dir", folder) == 0

    gone, torn, *_ = sorted(first)
    (folder / gone).unlink()
    (folder / torn).write_bytes(first[torn][: len(first[torn]) // 2])
    ran: list[Cell] = []
    run_cell = sweep.run_cell

    def counted(cell: Cell, on_progress: object = None) -> Finished:
        ran.append(cell)
        return run_cell(cell)

    monkeypatch.setattr(sweep, "run_cell", counted)
    assert simulate(*grid, "--out-dir", folder) == 0
    assert len(ran) == 2
    for name, data in files(folder).items():
        old, new = json.loads(first[name]), json.loads(data)
        assert old["figures"] == new["figures"]
        assert old["inputs"] == new["inputs"]


def test_runs_of_other_code_or_other_inputs_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cells"
    grid = ("--sweep", "--policy", "random", "--load", "0.5", "--seed", "1", "--out-dir", folder)
    assert simulate(*grid) == 0
    (before,) = files(folder).values()
    assert simulate(*grid, "--tenants", "3") == 0
    assert len(files(folder)) == 2
    monkeypatch.setattr(store, "code_digest", lambda: "other code")
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "run_cell", never)
        assert simulate(*grid, "--any-code") == 0
    assert simulate(*grid) == 0
    assert before not in files(folder).values()
    assert sum(json.loads(data)["code"] == "other code" for data in files(folder).values()) == 1


def test_processes_find_what_one_finds(tmp_path: Path) -> None:
    found = []
    for jobs in ("1", "2"):
        path = tmp_path / f"{jobs}.json"
        arguments = ("--policy", "random", "round_robin", "--json", path)
        assert main(["simulate", *SMALL[:-1], jobs, *map(str, arguments)]) == 0
        document = json.loads(path.read_text("utf-8"))
        found.append([(run["inputs"], run["figures"]) for run in document["runs"]])
    assert found[0] == found[1]


def ended(group: int, within_s: float = 20.0) -> bool:
    """Whether every process of a group is gone; multiprocessing's own tracker takes a moment."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_leaves_whole_runs_and_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "cells"
    small = ["--fleet", "testbed-14", "--policy", "random", "--out-dir", str(folder), "--requests", "300"]
    small += ["--seconds", "0", "0"]
    grid = ["--sweep", "--load", "0.5", "--seed", *map(str, range(40)), "--jobs", "2"]
    command = [sys.executable, "-m", "cli", "simulate", *small, *grid]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while process.poll() is None and not any(folder.glob("*.json")):
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "interrupted; what was finished is kept" in said
    assert "Traceback" not in said
    assert ended(process.pid), "a process was left"
    kept = list(folder.glob("*.json"))
    assert 0 < len(kept) < 40
    for path in kept:
        assert json.loads(path.read_text("utf-8"))["figures"]["requests"] == 300


def test_a_run_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell = sweep.run_cell

    def broken(cell: Cell, on_progress: object = None) -> Finished:
        if cell.policy == "random":
            raise SimulationError("a law broke", field="laws")
        return run_cell(cell)

    monkeypatch.setattr(sweep, "run_cell", broken)
    figures = tmp_path / "x.json"
    assert simulate("--policy", "random", "round_robin", "--json", figures) == 1
    document = json.loads(figures.read_text("utf-8"))
    assert [each["because"] for each in document["failures"]] == ["a law broke"]
    assert [row["policy"] for row in document["rows"]] == ["round_robin"]
    shown = capsys.readouterr().out
    assert "random-1 failed: a law broke" in shown
    assert shown.splitlines()[-1] == "1 of 2 runs failed: see above."
    assert simulate("--policy", "random") == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 runs failed: see above."


def test_a_router_that_crashes_is_told_with_where_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(_self: object, _request: object) -> None:
        raise KeyError("no such worker")

    monkeypatch.setattr("simulator.rivals.random_choice.RandomChoice.arrive", crash)
    assert simulate("--policy", "random", "round_robin") == 1
    shown = capsys.readouterr().out
    assert "KeyError: 'no such worker'" in shown
    assert "mixed, 0.9 x no-reuse capacity" in shown
    assert shown.splitlines()[-1] == "1 of 2 runs failed: see above."
