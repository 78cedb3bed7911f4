"""One cell, simulated."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvcompass.engine_model import EvictionPolicy
from kvcompass.wan import Link
from simulator.errors import SimulationError
from simulator.experiments.cell import Cell, Setting
from simulator.experiments.policies import policy_named
from simulator.experiments.watch import Watch, WatchedSource
from simulator.experiments.window import MeasuredSource, Window
from simulator.fleet import Fleet
from simulator.fleets import FleetOptions, load_fleet
from simulator.impairment import SOUND, Impairment
from simulator.results.figures import RunFigures, run_figures
from simulator.results.outcome import columns
from simulator.router import Rival
from simulator.source import RequestSource
from simulator.workloads import WorkloadOptions, build_source
from simulator.world import World


@dataclass(frozen=True, slots=True)
class Finished:
    """A cell and what came of it."""

    cell: Cell
    source: str
    """Workload, origin of its data and arrivals, in words."""
    figures: RunFigures
    wall_s: float
    """Real time that the run took."""


def fleet_of(setting: Setting) -> Fleet:
    """Return the setting's fleet.

    Raises:
        SimulationError, PlanError: There is no such fleet, or its plan is faulty.
    """
    options = FleetOptions(
        block_size=setting.block_size,
        timing="linear" if setting.linear else "measured",
        eviction=EvictionPolicy(setting.eviction),
    )
    return load_fleet(setting.fleet, options)


def source_of(
    setting: Setting, fleet: Fleet, rate_per_s: float, seed: int, *, endless: bool = False
) -> RequestSource:
    """Return the setting's requests, those of the warm-up included.

    Args:
        setting: What is asked, and how.
        fleet: Of whom.
        rate_per_s: By the whole fleet.
        seed: Of all chance.
        endless: As many as the workload has, not only the least that the setting wants.

    Raises:
        SimulationError: There is no such workload, or its file is faulty.
    """
    return build_source(
        setting.workload,
        fleet=fleet,
        rate_per_s=rate_per_s,
        seed=seed,
        count=None if endless else setting.warm_up + setting.requests,
        arrivals=setting.arrivals,
        options=options_of(setting),
    )


def window_of(setting: Setting) -> Window:
    """Return what a setting says of the requests that count."""
    return Window(
        warm_up=setting.warm_up,
        requests=setting.requests,
        warm_up_us=round(1e6 * setting.warm_up_s),
        window_us=round(1e6 * setting.window_s),
    )


def options_of(setting: Setting) -> WorkloadOptions:
    """Return what a setting says of its workload."""
    return WorkloadOptions(
        tenants=setting.tenants,
        users=setting.users,
        think_s=setting.think_s,
        data=None if setting.data is None else Path(setting.data),
        tokenizer=None if setting.tokenizer is None else Path(setting.tokenizer),
    )


def run_cell(cell: Cell, on_progress: Callable[[int], None] | None = None) -> Finished:
    """Simulate a cell from cold caches until every request that counts has ended, and those beside it.

    Args:
        cell: What to run.
        on_progress: Told now and then how many requests have ended.

    Raises:
        SimulationError: The cell cannot be run, or a law broke.
    """
    began = time.monotonic()
    fleet = fleet_of(cell.setting)
    asked = source_of(cell.setting, fleet, cell.rate_per_s, cell.seed, endless=True)
    source = MeasuredSource(asked, window_of(cell.setting))
    world, watch = watched_world(fleet, source, rival_of(cell), cell.seed, cell.setting.impairment)
    world.run(on_progress)
    counts = source.counts(world.records.rows)
    if not counts.any():
        raise SimulationError(
            f"{source.label} has {world.records.rows} requests, none beyond the warm-up of "
            f"{cell.setting.warm_up} and {cell.setting.warm_up_s:g} s; measure all of them with "
            f"--warm-up 0 --seconds 0 0, or ask for a shorter one",
            field="warm-up",
        )
    figures = run_figures(fleet, columns(world.records), watch.watched(), counts)
    return Finished(cell, source.label, figures, time.monotonic() - began)


def rival_of(cell: Cell) -> Rival:
    """Return a cell's policy.

    Raises:
        SimulationError: There is none of its name, or it cannot be impaired as asked.
    """
    return policy_named(cell.policy, cell.setting.faithful, cell.setting.impairment)


def watched_world(
    fleet: Fleet, source: RequestSource, rival: Rival, seed: int, impairment: Impairment = SOUND
) -> tuple[World, Watch]:
    """Return a world that has not begun, and what looks at it."""
    watched = WatchedSource(source)

    def link(origin: int, region: int) -> Link:
        return impairment.link(fleet.plan.wan_ms[origin][region])

    world = World(fleet, watched, rival, seed=seed, link_of=link)
    watched.watch = Watch(world)
    return world, watched.watch
