"""Policies, loads and seeds over one setting: the cells of a sweep, and what its runs say together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from simulator.experiments.cell import Cell, Setting
from simulator.experiments.policies import policy_named
from simulator.experiments.run import Finished, fleet_of, options_of
from simulator.results.rows import Row, Run, rows
from simulator.workloads import Capacity, capacity_of, read_beginning, recorded_rate_per_s

LOADS: Final = (0.5, 0.9, 1.2, 1.6, 2.0)
"""Of a sweep: from hardly any waits to where nothing but reuse can keep up."""
SEEDS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class Grid:
    """What is varied. Loads are multiples of the no-reuse capacity, or rates in requests/s."""

    policies: Sequence[str]
    loads: Sequence[float] = ()
    """Where there are none, one of the next two says how much is asked."""
    rate_per_s: float | None = None
    seeds: Sequence[int] = (1,)


def capacity(setting: Setting, seed: int) -> Capacity:
    """Return the no-reuse capacity of a setting's fleet for its workload, as a run of that seed draws it.

    System prompts, texts and tools are drawn once a run, and by seed the capacity differs by a tenth: a load
    is one multiple of it, and the rate that this is differs from seed to seed.

    Raises:
        SimulationError: Fleet or workload cannot be had.
    """
    return capacity_of(setting.workload, fleet=fleet_of(setting), seed=seed, options=options_of(setting))


def recorded_rate(setting: Setting) -> float:
    """Return the requests a second at which a setting's workload was recorded.

    Raises:
        SimulationError: Fleet or workload cannot be had, or it was not recorded.
    """
    return recorded_rate_per_s(setting.workload, fleet=fleet_of(setting), options=options_of(setting))


def try_workload(setting: Setting) -> None:
    """Read the beginning of a workload's file before anything is run.

    Raises:
        SimulationError: Fleet or workload cannot be had.
        TraceError: The file is faulty, with line and field.
    """
    read_beginning(setting.workload, fleet=fleet_of(setting), options=options_of(setting))


def cells(setting: Setting, grid: Grid, capacities_per_s: Mapping[int, float] | None) -> list[Cell]:
    """List the runs of a grid: seed by seed, load by load, so that a sweep that is cut short has whole rows.

    Args:
        setting: What they have in common.
        grid: What is varied.
        capacities_per_s: What loads are multiples of, by seed; None where the grid has none.

    Raises:
        SimulationError: There is no policy of a name.
    """
    for policy in grid.policies:
        policy_named(policy, setting.faithful, setting.impairment)
    wanted = []
    for seed in grid.seeds:
        places: list[tuple[float | None, float]]
        if capacities_per_s is None:
            places = [(None, grid.rate_per_s or 0.0)]
        else:
            places = [(load, load * capacities_per_s[seed]) for load in grid.loads]
        wanted += [
            Cell(setting, policy, rate_per_s, load, seed)
            for load, rate_per_s in places
            for policy in grid.policies
        ]
    return wanted


def unit(cell: Cell) -> str:
    """Say what the load of a cell's row is counted in."""
    if cell.setting.arrivals == "closed":
        return "users"
    return "requests/s" if cell.load is None else "x no-reuse capacity"


def rows_of(finished: Sequence[Finished]) -> list[Row]:
    """Put finished cells together: a row for each workload, load and policy."""
    return rows([_run(each) for each in finished])


def _run(finished: Finished) -> Run:
    cell, setting = finished.cell, finished.cell.setting
    load = cell.load if cell.load is not None else cell.rate_per_s
    return Run(
        workload=Path(setting.workload).stem,
        load=float(setting.users) if setting.arrivals == "closed" else load,
        policy=cell.policy,
        seed=cell.seed,
        figures=finished.figures,
        is_bound=policy_named(cell.policy, setting.faithful).is_bound,
    )
