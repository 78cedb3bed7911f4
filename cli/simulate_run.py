"""What `kvcompass simulate` does with its options."""

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from rich.console import Console

from simulator.errors import SimulationError
from simulator.experiments.cell import Cell, Setting
from simulator.experiments.document import as_json, provenance
from simulator.experiments.policies import POLICIES, usual_eviction
from simulator.experiments.progress import SweepProgress, duration
from simulator.experiments.store import CellStore, write_whole
from simulator.experiments.study import (
    LOADS,
    SEEDS,
    Grid,
    capacity,
    cells,
    recorded_rate,
    rows_of,
    try_workload,
    unit,
)
from simulator.experiments.sweep import Swept, run_cells
from simulator.fleets.named import NAMED
from simulator.results.measured import measured
from simulator.results.plot import need_plots, save_plot
from simulator.results.table import print_rows, wide
from simulator.workloads import WORKLOADS, Capacity
from simulator.workloads.options import data_folder
from simulator.workloads.traces.row import TraceError

_WARM_UP_SHARE: Final = 0.25
_LOAD: Final = 0.9


def run(options: argparse.Namespace) -> int:
    """Simulate what is asked for; print, and write what is to be written.

    Raises:
        SimulationError, PlanError: Something asked for is not there, or does not fit together.
    """
    try:
        return _run(options)
    except TraceError as error:
        # Its own field is one of the file's.
        raise SimulationError(str(error), field="workload") from error


def _run(options: argparse.Namespace) -> int:
    setting = _setting(options)
    _writable(options.json, "json")
    _writable(options.png, "png")
    if options.png is not None:
        need_plots(options.png)
    try_workload(setting)
    grid = _grid(options, setting)
    console = Console()
    wide(console)
    found = {seed: capacity(setting, seed) for seed in grid.seeds} if grid.loads else {}
    rates = {seed: each.rate_per_s for seed, each in found.items()}
    wanted = cells(setting, grid, rates or None)
    _say(console, setting, found)
    folder = options.out_dir or (Path("out/sweep") if options.sweep else None)
    with TemporaryDirectory(prefix="kvcompass-simulate-") as scratch:
        store = CellStore(folder or Path(scratch), any_code=options.any_code)
        jobs, began_s = min(options.jobs, len(wanted)), time.monotonic()
        with SweepProgress(Console(stderr=True)) as progress:
            swept = run_cells(wanted, store, progress, jobs)
        took_s = time.monotonic() - began_s
    _tell_failures(console, swept)
    if swept.finished:
        wall_s = sum(each.wall_s for each in swept.finished)
        beside = f", {duration(took_s)} with {jobs} jobs" if jobs > 1 else ""
        _report(console, options, swept, found, wanted, f"{duration(wall_s)} of runs{beside}", store.code)
    if swept.failures:
        said = f"{len(swept.failures)} of {len(wanted)} runs failed: see above."
        console.print(said, highlight=False, soft_wrap=True, style="red")
    return 1 if swept.failures else 0


def print_names() -> None:
    """Print what there is to choose from."""
    console = Console()
    for title, names in (
        ("fleets", [*NAMED, "scale-WxR: W workers over R regions", "FILE.toml: a plan of the product"]),
        ("workloads", list(WORKLOADS)),
        ("policies", [f"{name}: {rival.follows}" for name, rival in POLICIES.items()]),
    ):
        console.print(f"{title}:", highlight=False)
        for name in names:
            console.print(f"  {name}", highlight=False, soft_wrap=True, markup=False)


def _setting(options: argparse.Namespace) -> Setting:
    if options.tokenizer is not None and options.workload in WORKLOADS:
        message = (
            f"{options.workload} has no texts of yours; leave it out, or give a chat export or a plain file"
        )
        raise SimulationError(message, field="tokenizer")
    data = data_folder({"KVCOMPASS_DATA": options.data or ""})
    warm_up = round(_WARM_UP_SHARE * options.requests) if options.warm_up is None else options.warm_up
    return Setting(
        fleet=options.fleet,
        workload=options.workload,
        requests=options.requests,
        warm_up=warm_up,
        warm_up_s=options.seconds[0],
        window_s=options.seconds[1],
        arrivals=options.arrivals,
        tenants=options.tenants,
        users=options.users,
        think_s=options.think,
        data=None if data is None else str(data),
        tokenizer=None if options.tokenizer is None else str(options.tokenizer),
        block_size=options.block,
        eviction=options.eviction or usual_eviction(options.workload),
        linear=options.linear,
        faithful=options.faithful,
    )


def _grid(options: argparse.Namespace, setting: Setting) -> Grid:
    loads, seeds = tuple(options.load or ()), tuple(options.seed or ())
    for option, given in (("load", loads), ("seed", seeds)):
        if len(given) > 1 and not options.sweep:
            raise SimulationError("give one, or add --sweep", field=option)
        if len(set(given)) < len(given):
            raise SimulationError("one is given twice; leave one out", field=option)
    if loads and options.rate is not None:
        raise SimulationError("give this or --rate, not both", field="load")
    closed = options.arrivals == "closed"
    if closed and (loads or options.rate is not None):
        raise SimulationError(
            "closed: here --users say how much is asked; leave --load and --rate out", field="arrivals"
        )
    rate_per_s = options.rate
    if not loads and rate_per_s is None and not closed:
        if options.arrivals == "recorded":
            rate_per_s = recorded_rate(setting)
        else:
            loads = LOADS if options.sweep else (_LOAD,)
    return Grid(
        policies=tuple(POLICIES) if options.policy == ["all"] else tuple(dict.fromkeys(options.policy)),
        loads=loads,
        rate_per_s=rate_per_s,
        seeds=seeds or (SEEDS if options.sweep else SEEDS[:1]),
    )


def _writable(path: Path | None, option: str) -> None:
    """Find out before hours of work."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{path.parent}: cannot be made: {error.strerror}; choose another folder"
        raise SimulationError(message, field=option) from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise SimulationError(f"{path}: cannot be written; choose another file", field=option)


def _say(console: Console, setting: Setting, found: Mapping[int, Capacity]) -> None:
    asked = (
        f"asked for {setting.requests:,} requests and {setting.window_s:g} s at least, after "
        f"{setting.warm_up:,} and {setting.warm_up_s:g} s to warm up"
    )
    rates = "the paper's linear rates" if setting.linear else "measured rates"
    console.print(
        f"{setting.fleet}, {setting.workload}: {asked}; {rates}, eviction {setting.eviction}, "
        f"blocks of {setting.block_size} tokens.",
        highlight=False,
        soft_wrap=True,
    )
    for seed, each in found.items():
        of_seed = f" of seed {seed}" if len(found) > 1 else ""
        console.print(
            f"No-reuse capacity{of_seed}: {each.rate_per_s:,.1f} requests/s (prefill "
            f"{each.prefill_per_s:,.1f}, decode {each.decode_per_s:,.1f}).",
            highlight=False,
            soft_wrap=True,
        )


def _tell_failures(console: Console, swept: Swept) -> None:
    for cell, why in swept.failures:
        said = f"{cell.name} failed: {why}"
        console.print(said, highlight=False, soft_wrap=True, markup=False, style="red")


def _report(
    console: Console,
    options: argparse.Namespace,
    swept: Swept,
    found: Mapping[int, Capacity],
    wanted: Sequence[Cell],
    took: str,
    code: str,
) -> None:
    setting, rows = wanted[0].setting, rows_of(swept.finished)
    print_rows(console, rows, unit(wanted[0]))
    sources = ", ".join(dict.fromkeys(each.source for each in swept.finished))
    console.print(f"Requests: {sources}. {took}.", highlight=False, soft_wrap=True)
    if options.json is not None:
        capacities = {rows[0].workload: found} if found else {}
        failures = [(cell.name, why) for cell, why in swept.failures]
        found_json = provenance(code) | as_json(swept.finished, rows, capacities, failures)
        write_whole(options.json, json.dumps(found_json, indent=1) + "\n")
        console.print(f"Figures: {options.json}", highlight=False, soft_wrap=True)
    if options.png is not None:
        load = f", {rows[0].load:g} {unit(wanted[0])}" if len({row.load for row in rows}) == 1 else ""
        heading = f"{rows[0].workload} on {setting.fleet}{load}; measured: {measured(rows)}"
        save_plot(rows, options.png, heading, unit(wanted[0]))
        console.print(f"Plot: {options.png}", highlight=False, soft_wrap=True)
