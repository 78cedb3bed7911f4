"""What may go wrong, by name, and how a seed draws when and where."""

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from simulator.convergence.shape import Shape
from simulator.streams import random_stream

MS: Final = 1_000
S: Final = 1_000_000

WARM_US: Final = 3 * S
"""Nothing fails before: the fleet starts, from nothing, at the beginning."""


class FaultKind(StrEnum):
    """A closed set: what is counted in reports."""

    KILL = "kill"
    """A process dies with its memory, and starts again later."""
    STOP = "stop"
    """SIGSTOP, and SIGCONT later."""
    CUT = "cut"
    """Nothing passes between a process and all others."""
    PART = "part"
    """Nothing passes between two regions."""
    BAD_LINKS = "bad links"
    """All links between regions lose, repeat, reorder and vary."""
    ENGINE_KILL = "engine kill"
    """An engine dies, and another one starts in its place later, or never."""
    ENGINE_STOP = "engine stop"
    """SIGSTOP of an engine."""
    ENGINE_RESTART = "engine restart"
    """An engine dies and is there again at once, empty."""
    FLUSH = "flush"
    """`/flush_cache`."""
    EVENT_LOSS = "event loss"
    """Batches of events do not reach an agent."""
    FORGE = "forge"
    """Somebody speaks to all units in a worker's name, in its agent's own epoch."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that begins and ends."""

    kind: FaultKind
    at_us: int
    until_us: int
    target: int = 0
    """Position among the processes, workers or pairs of regions: whichever its kind concerns."""
    severity: float = 0.0
    """Of bad links and lost events, from 0 to 1."""
    for_good: bool = False
    """An engine that does not come back."""


_WEIGHTS: Final = {
    FaultKind.KILL: 5,
    FaultKind.STOP: 4,
    FaultKind.CUT: 3,
    FaultKind.PART: 3,
    FaultKind.BAD_LINKS: 3,
    FaultKind.ENGINE_KILL: 2,
    FaultKind.ENGINE_STOP: 2,
    FaultKind.ENGINE_RESTART: 2,
    FaultKind.FLUSH: 1,
    FaultKind.EVENT_LOSS: 2,
}
_FORGES: Final = 0.4
"""Share of runs in which somebody does. Drawn apart, so that the other faults are those of any run."""
_MOST: Final = 9
_LONGEST_US: Final = 6 * S
"""More than a lease and more than an edge's silence."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """All faults of a run, and when the last one ends."""

    faults: tuple[Fault, ...]
    change_us: int | None
    """When the plan begins to change, if it does."""
    quiet_us: int
    """From here on nothing fails, and the plan does not begin to change."""


def draw_schedule(seed: int, shape: Shape, processes: int) -> Schedule:
    """A few faults, close together. The first worker's engine and agent suffer from links alone."""
    stream = random_stream(seed, "convergence faults")
    span_us = stream.randint(2 * S, 8 * S)
    faults = [_draw(stream, shape, processes, span_us) for _ in range(stream.randint(1, _MOST))]
    if shape.lossy:
        faults.append(
            Fault(FaultKind.BAD_LINKS, WARM_US, WARM_US + span_us, severity=stream.uniform(0.2, 1.0))
        )
    forges = random_stream(seed, "convergence forgeries")
    if forges.random() < _FORGES:
        at_us = WARM_US + forges.randrange(span_us)
        target = forges.randrange(1, len(shape.plan.workers))
        faults.append(Fault(FaultKind.FORGE, at_us, at_us, target))
    faults.sort(key=lambda fault: fault.at_us)
    quiet_us = max(fault.until_us for fault in faults) + stream.randint(0, 500 * MS)
    change_us = None
    if shape.next_plan is not None:
        change_us = WARM_US + stream.randrange(span_us)
        quiet_us = max(quiet_us, change_us + MS)
    return Schedule(tuple(faults), change_us, quiet_us)


def _draw(stream: Random, shape: Shape, processes: int, span_us: int) -> Fault:
    kind = stream.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    at_us = WARM_US + stream.randrange(span_us)
    lasts_us = round(_LONGEST_US * stream.random() ** 2) + 20 * MS
    workers, regions = len(shape.plan.workers), len(shape.plan.regions)
    match kind:
        case FaultKind.KILL | FaultKind.STOP | FaultKind.CUT:
            target = stream.randrange(processes)
        case FaultKind.PART:
            target = stream.randrange(regions * (regions - 1) // 2)
        case FaultKind.BAD_LINKS:
            target = 0
        case FaultKind.ENGINE_RESTART | FaultKind.FLUSH:
            target, lasts_us = stream.randrange(1, workers), 0
        case _:
            target = stream.randrange(1, workers)
    return Fault(
        kind,
        at_us,
        at_us + lasts_us,
        target,
        severity=stream.random(),
        for_good=kind is FaultKind.ENGINE_KILL and stream.random() < 0.4,
    )
