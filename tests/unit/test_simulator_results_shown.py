"""Rows as tables, plots and pages."""

import io
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from simulator.errors import SimulationError
from simulator.experiments import compare, compare_joined, compare_page
from simulator.results.plot import save_plot
from simulator.results.rows import Row, rows
from simulator.results.table import print_rows
from tests.models.simulated_runs import PLAIN, run, slower

PNG_SIZE = re.compile(rb"\x89PNG\r\n\x1a\n....IHDR(....)(....)", re.DOTALL)
POLICIES = ("kvcompass", "regional", "least_loaded", "dynamo")


def three_seeds(*loads: float) -> list[Row]:
    return rows(
        [
            run(policy, slower(PLAIN, place + seed / 10), load=load, seed=seed)
            for load in loads
            for place, policy in enumerate(POLICIES, start=1)
            for seed in (1, 2, 3)
        ]
    )


def printed(found: list[Row], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    print_rows(console, found, "x no-reuse capacity")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def lines(text: str) -> list[list[str]]:
    return [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        for line in text.splitlines()
        if line[:1] in "│┃" and line
    ]


def test_every_policy_has_a_column_and_every_load_a_table() -> None:
    found = lines(printed(three_seeds(0.5, 2.0), width=200))
    heads = [line for line in found if "no-reuse" in line[0]]
    assert [line[0] for line in heads] == [
        f"mixed, {load} x no-reuse capacity, 3 seeds" for load in ("0.5", "2")
    ]
    assert heads[0][1:] == ["KVCompass", "regional", "least loaded", "Dynamo"]
    (p50, _) = (line for line in found if line[0] == "TTFT P50, ms")
    assert [cell.partition(" ±")[0] for cell in p50[1:]] == ["* 120", "220", "320", "420"]
    assert all("±" in cell for cell in p50[1:])


def test_what_does_not_fit_beside_goes_below_and_nothing_is_folded() -> None:
    wide, narrow = (lines(printed(three_seeds(0.5), width)) for width in (200, 85))
    assert sorted(cell for line in wide for cell in line[1:]) == sorted(
        cell for line in narrow for cell in line[1:]
    )
    assert len(narrow) == 2 * len(wide)


def test_the_best_of_a_line_is_bold_and_a_bound_never_is() -> None:
    found = rows([run("a", slower(PLAIN, 2.0)), run("b"), run("c", slower(PLAIN, 0.1), bound=True)])
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="standard")
    print_rows(console, found, "")
    assert isinstance(console.file, io.StringIO)
    (line,) = (line for line in console.file.getvalue().splitlines() if "TTFT P50" in line)
    assert re.findall(r"\x1b\[1m *(\*? ?[\d,.]+)\x1b", line) == ["* 100"]
    assert line.count("*") == 1, "as it is where there is no bold"


def test_the_foot_says_what_was_measured_and_not_what_was_asked_for() -> None:
    short = replace(PLAIN, requests=50, seconds=27.4)
    one = printed(rows([run("random", short)]), 200)
    assert "Measured: 50 requests in 27 s. " in one
    assert "One seed: no interval." in one
    several = printed(rows([run("random", short), run("random", PLAIN, seed=2)]), 200)
    assert "Measured: 50 to 1,000 requests in 10 to 27 s, each run." in several
    assert "95 % interval" in several
    assert "no interval" not in several


def test_who_claims_nothing_has_no_wrong_claims() -> None:
    found = lines(printed(rows([run("a", replace(PLAIN, wrong_claims=None)), run("b")]), 200))
    (line,) = (line for line in found if line[0] == "wrong claims, %")
    assert line[1:] == ["-", "1.0"]


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """What is drawn, in place of files."""
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, _path: drawn.append(figure))
    return drawn


@pytest.mark.parametrize("loads", [(0.9,), (0.5, 0.9)])
def test_every_policy_is_drawn_otherwise_and_kvcompass_always_alike(
    loads: tuple[float, ...], figures: list[Figure]
) -> None:
    names = [f"rival {place}" for place in range(30)]
    ours = []
    for place in (0, 17):
        policies = [*names[:place], "kvcompass", *names[place:]]
        save_plot(
            rows([run(name, load=load) for load in loads for name in policies]), Path("x.png"), "heading", ""
        )
        (panel, *_) = figures[-1].axes
        curves = [(each.get_label(), each.lines[0]) for each in panel.containers]
        curves = curves or [(line.get_label(), line) for line in panel.get_lines()]
        drawn = {label: (line.get_color(), line.get_linestyle()) for label, line in curves}
        assert len(drawn) == len(set(drawn.values())) == 31
        ours.append(drawn["KVCompass"])
        assert [colour for colour, _ in drawn.values()].count(ours[-1][0]) == 1
    assert ours[0] == ours[1]


@pytest.mark.parametrize("loads", [(0.9,), (0.5, 0.9)])
def test_a_plot_says_why_there_is_no_load_factor(loads: tuple[float, ...], figures: list[Figure]) -> None:
    short = replace(PLAIN, peak_load_factor=None)
    for figures_ in (short, PLAIN):
        save_plot(rows([run("random", figures_, load=load) for load in loads]), Path("x.png"), "heading", "")
    for figure, absent in zip(figures, (True, False), strict=True):
        (panel,) = (axes for axes in figure.axes if axes.get_title().startswith("peak load factor"))
        assert "lower is better" in panel.get_title()
        assert [text.get_text() for text in panel.texts] == absent * ["no load factor: run shorter than 30 s"]


@pytest.mark.parametrize("loads", [(0.9,), (0.5, 0.9, 2.0)])
def test_a_plot_is_a_picture_of_a_legible_size(loads: tuple[float, ...], tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    save_plot(three_seeds(*loads), path, "heading", "x no-reuse capacity")
    found = PNG_SIZE.match(path.read_bytes())
    assert found is not None
    width, height = (int.from_bytes(each, "big") for each in found.groups())
    assert width >= 1_200
    assert height >= 800


def test_a_plot_of_runs_that_all_failed_is_empty_and_no_error(tmp_path: Path) -> None:
    nothing = replace(
        PLAIN,
        ttft_ms=replace(PLAIN.ttft_ms, mean=None, p50=None, p90=None, p99=None),
        e2e_ms=replace(PLAIN.e2e_ms, mean=None, p50=None, p90=None, p99=None),
        queue_ms=replace(PLAIN.queue_ms, mean=None, p50=None, p90=None, p99=None),
        ttft_curve_ms=(),
        parts=None,
        parts_middle=None,
        parts_slowest=None,
        parts_longest=None,
        peak_load_factor=None,
    )
    for loads in ((0.9,), (0.5, 0.9)):
        found = rows([run(policy, nothing, load=load) for load in loads for policy in POLICIES])
        save_plot(found, tmp_path / "x.png", "heading", "unit")
        assert "-" in printed(found, 200)


def test_a_plot_into_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="cannot be written"):
        save_plot(three_seeds(0.9), tmp_path / "nowhere" / "x.png", "heading", "unit")
    with pytest.raises(SimulationError, match="cannot be written"):
        save_plot(three_seeds(0.9), tmp_path / "x.nothing", "heading", "unit")


def document(better: bool) -> dict[str, object]:
    factors = {"kvcompass": 1.0, "dynamo": 0.5 if better else 2.0}
    return {
        "code": "0123456789abcdef",
        "no_reuse_capacity": {"mixed": {str(seed): {"rate_per_s": 250.0 + seed} for seed in (1, 2, 3)}},
        "rows": [{"workload": "mixed", "policy": policy, "is_bound": False} for policy in factors],
        "failures": [],
        "runs": [
            {
                "inputs": {
                    "setting": {
                        "workload": "mixed",
                        "fleet": "paper-64",
                        "requests": 1_000,
                        "warm_up": 250,
                        "warm_up_s": 60.0,
                        "window_s": 90.0,
                        "arrivals": "poisson",
                    },
                    "policy": policy,
                    "rate_per_s": 250.0 * load,
                    "load": load,
                    "seed": seed,
                },
                "source": "mixed (published texts, synthetic answers), poisson 250/s",
                "wall_s": 60.0,
                "figures": json.loads(json.dumps(asdict(slower(PLAIN, factor + seed / 100)))),
            }
            for load in (0.5, 2.0)
            for policy, factor in factors.items()
            for seed in (1, 2, 3)
        ],
    }


def test_the_page_lists_what_is_lost_and_says_so_when_nothing_is(tmp_path: Path) -> None:
    first = compare_page.write(document(better=False), tmp_path)
    assert {path.relative_to(tmp_path).as_posix() for path in first} == {
        "img/compare-mixed.png",
        "reproduction/compare.md",
        "reproduction/compare.json.gz",
    }
    text = (tmp_path / "reproduction/compare.md").read_text("utf-8")
    assert "mixed (published texts, synthetic answers)." in text.replace("\n", " ")
    assert "(mixed 251 to 253 requests/s)" in text
    assert "Nowhere, by the mean of the seeds." in text
    assert re.search(r"\| Dynamo \| 1\.98 \| 1\.98 \| 1\.3 \|", text), "over KVCompass's, and the paper's"
    compare_page.write(document(better=True), tmp_path)
    text = (tmp_path / "reproduction/compare.md").read_text("utf-8")
    lost = re.findall(r"^\| mixed \| (\S+) \| ([^|]+) \| .* \| Dynamo \| yes \|", text, re.MULTILINE)
    assert lost == [
        (load, figure)
        for load in ("0.5", "2")
        for figure in ("TTFT P50, ms", "TTFT P99, ms", "end to end P99, ms")
    ]
    assert "First in 2 of 8 figures; beaten beyond chance in 6." in text


def part(*seeds: int, **changed: object) -> dict[str, Any]:
    whole: dict[str, Any] = document(better=True)
    whole["no_reuse_capacity"]["mixed"] = {str(seed): {"rate_per_s": 250.0 + seed} for seed in seeds}
    whole["runs"] = [run for run in whole["runs"] if run["inputs"]["seed"] in seeds]
    return whole | changed


def test_a_comparison_that_was_run_in_parts_is_as_one_that_was_not(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text(json.dumps(part(1)), "utf-8")
    second.write_text(json.dumps(part(2, 3)), "utf-8")
    docs = ["--docs", str(tmp_path / "docs")]
    assert compare.main(["--write-docs", str(first), *docs]) == 0
    kept = tmp_path / "docs/reproduction/compare.json.gz"
    assert compare.main(["--write-docs", str(kept), str(second), *docs]) == 0
    compare_page.write(document(better=True), tmp_path / "whole")
    pages = [tmp_path / docs / "reproduction/compare.md" for docs in ("docs", "whole")]
    assert pages[0].read_text("utf-8") == pages[1].read_text("utf-8")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (part(2, 1), "mixed, kvcompass, load 0.5, seed 1: is there twice"),
        (part(2, code="fedcba9876543210"), "different code made them (0123456789abcdef, fedcba9876543210)"),
        ({"runs": []}, "no document of a comparison"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(
    second: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    for file, found in zip(files, (part(1), second), strict=True):
        file.write_text(json.dumps(found), "utf-8")
    docs = tmp_path / "docs"
    assert compare.main(["--write-docs", *map(str, files), "--docs", str(docs)]) == 2
    assert message in capsys.readouterr().err
    assert not docs.exists()


def test_the_page_says_for_how_long_each_workload_was_measured() -> None:
    whole = part(1)
    assert "over 90 s or more," in compare_page.text(whole, three_seeds(0.5)).replace("\n", " ")
    other = json.loads(json.dumps(part(1)))
    for each in other["runs"]:
        each["inputs"]["setting"] |= {"workload": "lmsys", "window_s": 20.0}
    both = compare_joined.joined([whole, other])
    assert "over 90 s (mixed), 20 s (lmsys) or more," in compare_page.text(both, three_seeds(0.5)).replace(
        "\n", " "
    )


def test_the_page_says_which_code_ran_which_policies() -> None:
    first, second = part(1), part(1, code="fedcba9876543210")
    first["runs"] = [run for run in first["runs"] if run["inputs"]["policy"] == "kvcompass"]
    second["runs"] = [run for run in second["runs"] if run["inputs"]["policy"] != "kvcompass"]
    whole = compare_joined.joined([compare_joined.joined([first]), second], any_code=True)
    text = compare_page.text(whole, three_seeds(0.5))
    assert "0123456789abcdef of KVCompass; fedcba9876543210 of " in text
    assert "0123456789abcdef." in compare_page.text(part(1), three_seeds(0.5))
    other = json.loads(json.dumps(first | {"code": "1111111111111111"}))
    for each in other["runs"]:
        each["inputs"]["setting"]["workload"] = "lmsys"
    text = compare_page.text(compare_joined.joined([whole, other], any_code=True), three_seeds(0.5))
    assert "0123456789abcdef of KVCompass (mixed); fedcba9876543210 of " in text
    assert "1111111111111111 of KVCompass (lmsys)." in text


def test_the_page_counts_the_fewest_seeds_of_a_policy_and_knows_no_chance_of_one() -> None:
    slow, seeds = document(better=False), (1,)
    slow["runs"] = [run for run in slow["runs"] if run["inputs"]["seed"] in seeds]
    found = [row for row in three_seeds(0.5) if row.policy != "kvcompass"]
    ours = rows([run("kvcompass", slower(PLAIN, 9.0))])
    text = compare_page.text(slow, [*ours, *found])
    assert " 1 seed, " in text.replace("\n", " ")
    assert "| - |" in text


def test_parts_of_other_settings_are_refused() -> None:
    other = part(2)
    for each in other["runs"]:
        each["inputs"]["setting"]["window_s"] = 10.0
    with pytest.raises(SimulationError, match=r"seed 2: window_s is 10\.0, of other runs 90\.0"):
        compare_joined.joined([part(1), other])


def test_what_is_kept_tells_no_path_and_is_the_same_bytes_each_time() -> None:
    found = part(1)
    for each in found["runs"]:
        each["inputs"]["setting"]["data"] = "/somewhere/on/a/machine/data"
    whole = compare_joined.joined([found])
    assert {each["inputs"]["setting"]["data"] for each in whole["runs"]} == {"data"}
    assert compare_joined.kept(whole) == compare_joined.kept(compare_joined.joined([whole]))


def test_a_file_of_figures_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    short = tmp_path / "compare.json.gz"
    short.write_bytes(compare_joined.kept(part(1))[:-20])
    with pytest.raises(SimulationError, match="cannot be read"):
        compare_joined.read(short)


def test_ratios_are_of_runs_under_the_same_requests() -> None:
    runs = [
        run(policy, slower(PLAIN, factor), seed=seed)
        for policy, factors in (("kvcompass", (0.25, 1.0)), ("dynamo", (0.5, 1.0)))
        for seed, factor in enumerate(factors)
    ]
    text = compare_page.text(document(better=False), rows(runs))
    assert "| Dynamo | 1.50 | 1.3 |" in text, "(2 + 1) / 2, and not the ratio of the means, 600 / 500"


def test_a_quick_comparison_is_run_gone_on_with_and_written_down(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, folder = tmp_path / "compare.json", tmp_path / "cells"
    quick = [
        "--quick",
        "--requests",
        "60",
        "--policies",
        "random",
        "round_robin",
        "--jobs",
        "1",
        "--seeds",
        "1",
    ]
    quick += ["--workloads", "mixed", "lmsys"]
    where = ["--json", str(figures), "--out-dir", str(folder)]
    assert compare.main([*quick, *where]) == 0
    found = json.loads(figures.read_text("utf-8"))
    assert len(found["runs"]) == 2 * 2 * 2
    assert set(found["no_reuse_capacity"]) == {"mixed", "lmsys"}
    evictions = {
        run["inputs"]["setting"]["workload"]: run["inputs"]["setting"]["eviction"] for run in found["runs"]
    }
    assert evictions == {"mixed": "lfu", "lmsys": "lru"}
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert compare.main([*quick, *where]) == 0
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert "8 of 8 runs are there already" in capsys.readouterr().out
    assert compare.main(["--write-docs", str(figures), "--docs", str(tmp_path / "docs")]) == 0
    text = (tmp_path / "docs/reproduction/compare.md").read_text("utf-8")
    for workload in ("mixed", "lmsys"):
        assert f"## {workload}" in text
        assert (tmp_path / f"docs/img/compare-{workload}.png").stat().st_size > 10_000
