"""The comparison of all policies, and the page about it.

python -m simulator.experiments.compare --json out/compare.json

Three workloads, five loads, three seeds, every policy, at least 20,000 requests and 45 s measured a run: some
hours on all cores. Finished runs are kept in --out-dir, so it can be interrupted and started again.
`--write-docs JSON...` writes docs/reproduction/compare.md, its plots and its figures (compare.json.gz) from a
whole comparison, without running anything. One that was run in parts (`--seeds 1`, then `--seeds 2 3`) is put
together of their documents, compare.json.gz among them.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rich.console import Console

from kvcompass.errors import KVCompassError
from simulator.experiments import compare_joined, compare_page
from simulator.experiments.cell import Cell, Setting
from simulator.experiments.document import as_json, provenance
from simulator.experiments.policies import POLICIES, usual_eviction
from simulator.experiments.progress import SweepProgress
from simulator.experiments.store import CellStore, write_whole
from simulator.experiments.study import LOADS, SEEDS, Grid, capacity, cells, rows_of, unit
from simulator.experiments.sweep import run_cells
from simulator.results.table import print_rows, wide
from simulator.workloads import Capacity
from simulator.workloads.options import data_folder

WORKLOADS: Final = ("mixed", "wildchat", "lmsys")
FULL: Final = Setting(fleet="paper-64", requests=20_000, warm_up=5_000, warm_up_s=20.0, window_s=45.0)
QUICK: Final = Setting(fleet="testbed-14", requests=400, warm_up=100)
"""Shows that everything works, and nothing else."""
QUICK_LOADS: Final = (0.5, 1.2)
QUICK_SEEDS: Final = (1, 2)


def settings(base: Setting, workloads: Sequence[str]) -> list[Setting]:
    """One a workload, each with the eviction that the paper's engines had for it."""
    return [replace(base, workload=each, eviction=usual_eviction(each)) for each in workloads]


def compare(
    wanted: Sequence[Setting], grid: Grid, store: CellStore, console: Console, jobs: int
) -> dict[str, Any]:
    """Run what is missing of a comparison and return its document.

    Raises:
        SimulationError: Something asked for is not there, or the code was changed meanwhile.
    """
    capacities: dict[str, dict[int, Capacity]] = {}
    runs: list[Cell] = []
    for setting in wanted:
        found = capacities[setting.workload] = {seed: capacity(setting, seed) for seed in grid.seeds}
        rates = {seed: each.rate_per_s for seed, each in found.items()}
        said = ", ".join(f"{rate:,.1f}" for rate in rates.values())
        console.print(f"{setting.workload}: no-reuse capacity {said} requests/s, by seed", highlight=False)
        runs += cells(setting, grid, rates)
    with SweepProgress(console) as progress:
        swept = run_cells(runs, store, progress, jobs)
    rows = rows_of(swept.finished)
    print_rows(console, rows, unit(runs[0]))
    failures = [(cell.name, why) for cell, why in swept.failures]
    return provenance(store.code) | as_json(swept.finished, rows, capacities, failures)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 where some runs failed, 2 where it could not begin, 130 where interrupted."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console()
    wide(console)
    try:
        return _run(options, console)
    except KVCompassError as error:
        sys.stderr.write(f"compare: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; finished runs are kept: run the same again to go on\n")
        return 130


def _run(options: argparse.Namespace, console: Console) -> int:
    if options.write_docs is not None:
        parts = [compare_joined.read(path) for path in options.write_docs]
        whole = compare_joined.joined(parts, any_code=options.any_code)
        written = compare_page.write(whole, options.docs)
        console.print(f"written: {', '.join(map(str, written))}", highlight=False, soft_wrap=True)
        return 0
    base = QUICK if options.quick else FULL
    requests = options.requests or base.requests
    data = data_folder(os.environ)
    base = replace(
        base,
        fleet=options.fleet or base.fleet,
        requests=requests,
        warm_up=requests // 4,
        warm_up_s=base.warm_up_s if options.seconds is None else options.seconds[0],
        window_s=base.window_s if options.seconds is None else options.seconds[1],
        data=None if data is None else str(data),
    )
    grid = Grid(
        policies=options.policies or tuple(POLICIES),
        loads=options.loads or (QUICK_LOADS if options.quick else LOADS),
        seeds=options.seeds or (QUICK_SEEDS if options.quick else SEEDS),
    )
    folder = options.out_dir or Path("out/compare-quick" if options.quick else "out/compare")
    store = CellStore(folder, any_code=options.any_code)
    document = compare(settings(base, options.workloads), grid, store, console, options.jobs)
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        write_whole(options.json, json.dumps(document, indent=1) + "\n")
        console.print(f"Figures: {options.json}", highlight=False, soft_wrap=True)
    return 1 if document["failures"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulator.experiments.compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a few small runs on the testbed's fleet")
    parser.add_argument("--fleet", help=f"[{FULL.fleet}]")
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS), metavar="W")
    parser.add_argument("--policies", nargs="+", metavar="P", help="[all]")
    parser.add_argument("--loads", nargs="+", type=float, metavar="X", help=f"[{' '.join(map(str, LOADS))}]")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="S", help=f"[{' '.join(map(str, SEEDS))}]")
    parser.add_argument(
        "--requests", type=int, metavar="N", help=f"measured at least, of a run [{FULL.requests}]"
    )
    parser.add_argument(
        "--seconds",
        nargs=2,
        type=float,
        metavar=("WARM_UP", "WINDOW"),
        help=f"virtual time that both last at least [{FULL.warm_up_s:g} {FULL.window_s:g}]",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="[%(default)s]")
    parser.add_argument("--out-dir", type=Path, metavar="DIR", help="finished runs [out/compare]")
    parser.add_argument("--any-code", action="store_true", help="also take finished runs of other code")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure")
    parser.add_argument(
        "--write-docs", type=Path, nargs="+", metavar="JSON", help="no run: write the page of these"
    )
    parser.add_argument("--docs", type=Path, default=compare_page.DOCS, help=argparse.SUPPRESS)
    return parser


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
