"""The command: many seeds with a summary, or one with its trace."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from simulator.convergence.bound import FORMULA, bound_terms
from simulator.convergence.many import as_json, nearest, replay_command, run_seeds, totals
from simulator.convergence.run import Outcome, run_seed
from simulator.convergence.shape import draw_shape

_SHOWN = 5
"""Failing seeds that are shown with what failed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it. Returns the exit status: 1 when a seed failed."""
    options = _parser().parse_args(arguments)
    console = Console()
    if options.seed is not None:
        return _one(options.seed, options.trace, console)
    seeds = range(options.first, options.first + options.seeds)
    outcomes = list(
        track(
            run_seeds(seeds, options.jobs),
            description="simulating",
            total=len(seeds),
            console=Console(stderr=True),
            disable=not console.is_terminal,
        )
    )
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(as_json(outcomes), indent=1) + "\n", "utf-8")
    _summary(outcomes, console)
    failed = [outcome for outcome in outcomes if outcome.failures]
    for outcome in failed[:_SHOWN]:
        _failure(outcome, console)
    if len(failed) > _SHOWN:
        console.print(f"... and {len(failed) - _SHOWN} more: see --json", highlight=False)
    return 1 if failed else 0


def _one(seed: int, trace: bool, console: Console) -> int:
    def write(line: str) -> None:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

    shape = draw_shape(seed)
    outcome = run_seed(seed, write if trace else None)
    write(f"bound = {FORMULA}")
    write(", ".join(f"{name} {us / 1e6:.3f}" for name, us in bound_terms(shape).items()))
    write(
        f"seed {seed}: recovered {outcome.recovered_us / 1e6:.1f} s after the last fault, bound"
        f" {outcome.bound_us / 1e6:.1f} s, trace {outcome.digest}"
    )
    if outcome.failures:
        _failure(outcome, console)
    return 1 if outcome.failures else 0


def _failure(outcome: Outcome, console: Console) -> None:
    lines = "\n".join(f"  {failure}" for failure in outcome.failures)
    console.print(
        f"seed {outcome.seed} failed:\n{lines}\n  again: {replay_command(outcome.seed)}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _summary(outcomes: Sequence[Outcome], console: Console) -> None:
    worst = nearest(outcomes)
    table = Table(title=f"{len(outcomes)} seeds, {sum(bool(o.failures) for o in outcomes)} failed")
    table.add_column("what")
    table.add_column("count", justify="right")
    for name, times in sorted(totals(outcomes, "faults").items()):
        table.add_row(f"fault: {name}", f"{times:,}")
    for name, times in sorted(totals(outcomes, "counts").items()):
        table.add_row(name, f"{times:,}")
    console.print(table)
    recovered = sorted(outcome.recovered_us / 1e6 for outcome in outcomes)
    console.print(
        f"recovered after {recovered[len(recovered) // 2]:.1f} s (median), {recovered[-1]:.1f} s (worst);"
        f" nearest to its bound: seed {worst.seed}, {worst.recovered_us / 1e6:.1f} of"
        f" {worst.bound_us / 1e6:.1f} s\nbound = {FORMULA}",
        highlight=False,
        soft_wrap=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulator.convergence",
        description="Whether every view tells the truth again within its bound, whatever fails.",
    )
    parser.add_argument("--seeds", type=_positive, default=1_000, metavar="N", help="runs [1000]")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of their seeds [0]")
    parser.add_argument("--jobs", type=_positive, default=1, metavar="N", help="processes [1]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes there")
    parser.add_argument("--seed", type=int, metavar="SEED", help="this run alone")
    parser.add_argument("--trace", action="store_true", help="with --seed: show all that happens in it")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value
