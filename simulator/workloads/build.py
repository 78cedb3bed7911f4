"""A workload's name or file, and how its requests arrive -> the source of a run's requests."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.source import RequestSource
from simulator.streams import random_stream
from simulator.workloads.arrivals.bursty import Bursty
from simulator.workloads.arrivals.closed_loop import ClosedLoop
from simulator.workloads.arrivals.open_loop import OpenLoop
from simulator.workloads.arrivals.poisson import Poisson
from simulator.workloads.capacity import Capacity, no_reuse_capacity, sample_lengths
from simulator.workloads.chat import Chat, Places, lmsys, wildchat
from simulator.workloads.countries import WILDCHAT_SHARES, ByCountry, nearest_regions
from simulator.workloads.draw import Draw
from simulator.workloads.mixed import Mixed
from simulator.workloads.mixed_synthetic import synthetic_datasets
from simulator.workloads.options import Arrivals, WorkloadOptions
from simulator.workloads.tenants import Tenants
from simulator.workloads.tokens import TokenSource
from simulator.workloads.workload import Workload


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
        workload: A name of `WORKLOADS`.
        fleet: Where requests may start.
        rate_per_s: Requests a second of the whole fleet; without meaning in a closed loop.
        seed: The same seed gives the same requests.
        count: After which there are no more; None: as many as the workload has, or without end.
        arrivals: How they follow one another.
        options: All else.

    Raises:
        SimulationError: There is no such workload or process, or the rate is not positive.
    """
    options = options or WorkloadOptions()
    asked = build_workload(workload, fleet=fleet, seed=seed, options=options)
    if arrivals == "closed":
        return ClosedLoop(asked, users=options.users, think_s=options.think_s, count=count, seed=seed)
    if not rate_per_s > 0:
        raise SimulationError(
            f"{rate_per_s:g} is no rate: give requests a second, above 0", field="rate_per_s"
        )
    settle_s = asked.settle_s if options.settled else 0.0
    if arrivals == "poisson":
        return OpenLoop(asked, Poisson(rate_per_s, seed), count=count, settle_s=settle_s)
    if arrivals == "bursty":
        return OpenLoop(asked, Bursty(rate_per_s, seed), count=count, settle_s=settle_s)
    raise SimulationError(
        f"{arrivals!r} is no arrival process: take poisson, bursty or closed", field="arrivals"
    )


def build_workload(
    workload: str | Path, *, fleet: Fleet, seed: int, options: WorkloadOptions | None = None
) -> Workload:
    """Return what is asked, without times: for `sample_lengths`, or arrivals of one's own.

    Raises:
        SimulationError: There is no such workload.
    """
    make = WORKLOADS.get(str(workload))
    if make is None:
        raise SimulationError(f"{workload!r} is no workload: take {', '.join(WORKLOADS)}", field="workload")
    return make(fleet, seed, options or WorkloadOptions())


def capacity_of(
    workload: str | Path, *, fleet: Fleet, seed: int = 0, options: WorkloadOptions | None = None
) -> Capacity:
    """Return lambda_0 of a fleet on a workload, from the first `capacity.SAMPLE` requests. Takes about 0.3
    s."""
    return no_reuse_capacity(
        fleet, sample_lengths(build_workload(workload, fleet=fleet, seed=seed, options=options))
    )


def _mixed(fleet: Fleet, seed: int, options: WorkloadOptions) -> Workload:
    tokens = TokenSource(seed)
    return Mixed(
        "synthetic",
        synthetic_datasets(tokens, seed),
        tenants=_tenants(options, tokens, seed),
        origins=_by_weight(fleet, seed),
        tokens=tokens,
        seed=seed,
    )


def _wildchat(fleet: Fleet, seed: int, options: WorkloadOptions) -> Workload:
    nearest = nearest_regions(list(WILDCHAT_SHARES), fleet.plan.regions)
    origins: Places = _by_weight(fleet, seed)
    if nearest is not None:
        origins = ByCountry(WILDCHAT_SHARES, nearest, random_stream(seed, "workload.origins"))
    tokens = TokenSource(seed)
    return Chat(
        wildchat(), tenants=_tenants(options, tokens, seed), origins=origins, tokens=tokens, seed=seed
    )


def _lmsys(fleet: Fleet, seed: int, options: WorkloadOptions) -> Workload:
    tokens = TokenSource(seed)
    tenants, origins = _tenants(options, tokens, seed), _by_weight(fleet, seed)
    return Chat(lmsys(), tenants=tenants, origins=origins, tokens=tokens, seed=seed)


WORKLOADS: Final[dict[str, Callable[[Fleet, int, WorkloadOptions], Workload]]] = {
    "mixed": _mixed,
    "wildchat": _wildchat,
    "lmsys": _lmsys,
}
"""By name."""


def _tenants(options: WorkloadOptions, tokens: TokenSource, seed: int) -> Tenants:
    return Tenants(options.tenants, tokens, random_stream(seed, "workload.tenants"))


def _by_weight(fleet: Fleet, seed: int) -> Draw:
    return Draw(fleet.origin_weights, random_stream(seed, "workload.origins"))
