"""A workload's name or file, and how its requests arrive -> the source of a run's requests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.source import RequestSource
from simulator.streams import random_stream
from simulator.workloads.arrivals.open_loop import OpenLoop
from simulator.workloads.arrivals.poisson import Poisson
from simulator.workloads.draw import Draw
from simulator.workloads.mixed import Mixed
from simulator.workloads.mixed_synthetic import synthetic_datasets
from simulator.workloads.tenants import Tenants
from simulator.workloads.tokens import TokenSource

Arrivals = Literal["poisson", "recorded", "bursty", "closed"]


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """What may be chosen about a workload."""

    tenants: int = 50
    """Each with a system prompt of its own before every prompt (paper 5.3, "at scale"); 0: none."""


def build_source(
    workload: str | Path,
    *,
    fleet: Fleet,
    rate_per_s: float,
    seed: int,
    count: int | None = None,
    arrivals: Arrivals = "poisson",
    options: WorkloadOptions | None = None,
) -> RequestSource:
    """Return the requests of one run.

    Args:
        workload: `mixed`.
        fleet: Where requests may start.
        rate_per_s: Requests a second of the whole fleet.
        seed: The same seed gives the same requests.
        count: After which there are no more; None: as many as the workload has, or without end.
        arrivals: How they follow one another.
        options: All else.

    Raises:
        SimulationError: There is no such workload.
    """
    options = options or WorkloadOptions()
    if workload != "mixed":
        raise SimulationError(f"{workload!r} is no workload: take mixed", field="workload")
    if arrivals != "poisson":
        raise SimulationError(f"{arrivals!r} is no arrival process: take poisson", field="arrivals")
    tokens = TokenSource(seed)
    mixed = Mixed(
        "synthetic",
        synthetic_datasets(tokens, seed),
        tenants=Tenants(options.tenants, tokens, random_stream(seed, "workload.tenants")),
        origins=Draw(fleet.origin_weights, random_stream(seed, "workload.origins")),
        tokens=tokens,
        seed=seed,
    )
    return OpenLoop(mixed, Poisson(rate_per_s, seed), count)
