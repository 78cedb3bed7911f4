"""A workload's name or file, and how its requests arrive -> the source of a run's requests."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Final

from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.source import RequestSource
from simulator.workloads.arrivals.bursty import Bursty
from simulator.workloads.arrivals.closed_loop import ClosedLoop
from simulator.workloads.arrivals.open_loop import OpenLoop
from simulator.workloads.arrivals.poisson import Poisson
from simulator.workloads.arrivals.recorded import RecordedLoop, measure
from simulator.workloads.arrivals.times import ArrivalTimes
from simulator.workloads.capacity import Capacity, no_reuse_capacity, sample_lengths
from simulator.workloads.named import TRACE_FILES, WORKLOADS
from simulator.workloads.options import Arrivals, WorkloadOptions
from simulator.workloads.traces.open import ENDINGS, PARQUET, open_trace
from simulator.workloads.workload import Workload

_BEGINNING: Final = 1_000
"""Requests that tell whether a file is in the form that it seems to be in."""


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
        workload: A name of `WORKLOADS`, or a file in a form that `open_trace` knows.
        fleet: Where requests may start.
        rate_per_s: Requests a second of the whole fleet; without meaning in a closed loop.
        seed: The same seed gives the same requests.
        count: After which there are no more; None: as many as the workload has, or without end.
        arrivals: How they follow one another.
        options: All else.

    Raises:
        SimulationError: There is no such workload, it has no times to replay, or a value is out of range.
    """
    options = options or WorkloadOptions()
    if arrivals != "closed" and not 0 < rate_per_s < float("inf"):
        raise SimulationError(f"{rate_per_s:g} is no rate: give requests a second", field="rate_per_s")
    if arrivals == "recorded":
        trace, read = open_trace(_recorded_file(workload, options), fleet, seed, options)
        return RecordedLoop(trace, measure(trace.label, read(), count), rate_per_s, count)
    asked = build_workload(workload, fleet=fleet, seed=seed, options=options)
    if arrivals == "closed":
        return ClosedLoop(asked, users=options.users, think_s=options.think_s, count=count, seed=seed)
    settle_s = asked.settle_s if options.settled else 0.0
    times: dict[str, Callable[[float, int], ArrivalTimes]] = {"poisson": Poisson, "bursty": Bursty}
    if arrivals not in times:
        raise SimulationError(
            f"{arrivals!r} is no arrival process: take {', '.join(times)}, recorded or closed",
            field="arrivals",
        )
    return OpenLoop(asked, times[arrivals](rate_per_s, seed), count=count, settle_s=settle_s)


def recorded_rate_per_s(
    workload: str | Path, *, fleet: Fleet, options: WorkloadOptions | None = None
) -> float:
    """Return the requests a second at which a workload was recorded: at these it is played at its own speed.

    Reads the whole file once.

    Raises:
        SimulationError: It was not recorded, has no times or a faulty line.
    """
    options = options or WorkloadOptions()
    trace, read = open_trace(_recorded_file(workload, options), fleet, 0, options)
    return measure(trace.label, read(), None).rate_per_s


def read_beginning(workload: str | Path, *, fleet: Fleet, options: WorkloadOptions | None = None) -> None:
    """Read the first requests of a workload that is a file; of others there is nothing to find out.

    Raises:
        SimulationError: There is no such workload.
        TraceError: A fault in the file, with line and field.
    """
    options = options or WorkloadOptions()
    path = _trace_file(workload, options)
    if path is not None:
        for entry in islice(open_trace(path, fleet, 0, options)[1](), _BEGINNING):
            entry.begin(0, 0)


def build_workload(
    workload: str | Path, *, fleet: Fleet, seed: int, options: WorkloadOptions | None = None
) -> Workload:
    """Return what is asked, without times: for `sample_lengths`, or arrivals of one's own.

    Raises:
        SimulationError: There is no such workload.
    """
    options = options or WorkloadOptions()
    path = _trace_file(workload, options)
    if path is not None:
        return open_trace(path, fleet, seed, options)[0]
    return WORKLOADS[str(workload)](fleet, seed, options)


def capacity_of(
    workload: str | Path, *, fleet: Fleet, seed: int = 0, options: WorkloadOptions | None = None
) -> Capacity:
    """Return lambda_0 of a fleet on a workload, from its first `capacity.SAMPLE` requests: about 0.4 s.

    Raises:
        SimulationError: Fleet or workload cannot be had, or the workload has no request.
    """
    sample = sample_lengths(build_workload(workload, fleet=fleet, seed=seed, options=options))
    if not sample.prompts:
        raise SimulationError(f"{workload} has no request in it: nothing can be played", field="workload")
    return no_reuse_capacity(fleet, sample)


def _recorded_file(workload: str | Path, options: WorkloadOptions) -> Path:
    path = _trace_file(workload, options)
    if path is None:
        raise SimulationError(
            f"{workload} was not recorded: take arrivals poisson, or a trace's file", field="arrivals"
        )
    return path


def _trace_file(workload: str | Path, options: WorkloadOptions) -> Path | None:
    """Return the file of a recorded workload; None for one that is generated."""
    name = str(workload)
    if options.data is not None and name in TRACE_FILES:
        file = options.data / TRACE_FILES[name]
        if file.exists():
            return file
    if name in WORKLOADS:
        return None
    if name.endswith((*ENDINGS, PARQUET)):
        return Path(workload)
    raise SimulationError(
        f"{name!r} is no workload: take {', '.join(WORKLOADS)}, or a file ending in {', '.join(ENDINGS)}",
        field="workload",
    )
