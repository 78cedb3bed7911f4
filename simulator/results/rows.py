"""Runs of several seeds put together: one row a policy and load, its figures with their spreads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simulator.results.figures import RunFigures
from simulator.results.metrics import BOUND_METRICS, METRICS
from simulator.results.spread import Spread

CLAIRVOYANT: Final = "clairvoyant"
"""The bound that others are held against. Other bounds are of one respect only."""
Load = float
"""Multiple of the no-reuse capacity, or requests/s: in one set of runs always the same of the two."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run's figures, and what sets it apart from others of its fleet."""

    workload: str
    load: Load
    policy: str
    seed: int
    figures: RunFigures
    is_bound: bool = False
    """It knows what no policy can, and ranks nowhere."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A policy under a load, over its seeds."""

    workload: str
    load: Load
    policy: str
    is_bound: bool
    seeds: tuple[int, ...]
    figures: Mapping[str, Spread | None]
    """By the names of METRICS and BOUND_METRICS; None where nothing was measured."""
    runs: tuple[RunFigures, ...]
    """By seed."""


def rows(runs: Sequence[Run]) -> list[Row]:
    """Put runs together, in the order in which their workloads, loads and policies first come."""
    grouped: dict[tuple[str, Load, str], list[Run]] = {}
    bounds: dict[tuple[str, Load, int], RunFigures] = {}
    for run in runs:
        grouped.setdefault((run.workload, run.load, run.policy), []).append(run)
        if run.policy == CLAIRVOYANT:
            bounds[run.workload, run.load, run.seed] = run.figures
    return [_row(group, bounds) for group in grouped.values()]


def _row(group: list[Run], bounds: Mapping[tuple[str, Load, int], RunFigures]) -> Row:
    group = sorted(group, key=lambda run: run.seed)
    first = group[0]
    figures = {metric.name: Spread.of(metric.of(run.figures) for run in group) for metric in METRICS}
    beside = [(run.figures, bounds.get((run.workload, run.load, run.seed))) for run in group]
    for metric in BOUND_METRICS:
        figures[metric.name] = Spread.of(
            None if bound is None else metric.of(figures_, bound) for figures_, bound in beside
        )
    return Row(
        workload=first.workload,
        load=first.load,
        policy=first.policy,
        is_bound=first.is_bound,
        seeds=tuple(run.seed for run in group),
        figures=figures,
        runs=tuple(run.figures for run in group),
    )
