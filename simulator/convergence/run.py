"""One seed: a fleet, a schedule of faults, and what came of them."""

import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulator.clock import Priority
from simulator.convergence.bound import bound_us
from simulator.convergence.counting import counted
from simulator.convergence.faults import draw_schedule
from simulator.convergence.fleet import Fleet
from simulator.convergence.injector import Injector
from simulator.convergence.shape import draw_shape
from simulator.convergence.trace import Trace
from simulator.convergence.truth import differences, falsehoods
from simulator.convergence.watch import Watch

_LOOK_US: Final = 200_000
"""From one look whether all is true to the next: recoveries are rounded up to it."""
_HOLD_US: Final = 8_000_000
"""All that is true for so long stays so: a lease, a silence, a period of comparisons and a return to an edge
would have ended it."""
_BEYOND_US: Final = 5_000_000
"""Until when after the bound a run that has not held that long is looked at: longer than a dead worker is
seen, and than an edge is silent."""
_TOLD: Final = 12
"""Failures of a run that are kept."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a seed."""

    seed: int
    failures: tuple[str, ...]
    recovered_us: int
    """From the end of the last fault until all was true for good; the bound, if it never was."""
    bound_us: int
    lossy: bool
    digest: str
    """Of the whole trace."""
    faults: Counter[str]
    """By kind."""
    counts: Counter[str]
    """What the roles counted."""


def run_seed(seed: int, write: Callable[[str], None] | None = None) -> Outcome:
    """Run a seed to its end. `write` is given the trace, line by line."""
    shape = draw_shape(seed)
    trace = Trace(write)
    fleet = Fleet(shape, seed, trace)
    schedule = draw_schedule(seed, shape, len(fleet.victims))
    bound = bound_us(shape)
    injector = Injector(fleet, schedule, patience_us=bound)
    watch = Watch(fleet, injector)
    end = _End(fleet, bound)
    injector.on_quiet = end.begin
    clock = fleet.clock
    clock.at(0, Priority.ENGINE, fleet.start)
    injector.start()
    failures: list[str] = []
    try:
        clock.run()
    except Exception as error:  # whatever a role raises is a failure of this seed, and of no other
        failures.append(f"at {clock.now_us / 1e6:.6f} {type(error).__name__}: {error}")
        if write is not None:
            write(traceback.format_exc())
    else:
        if injector.operator is not None and not injector.operator.is_done:
            failures.append("the plan has not changed everywhere")
        failures += end.failures
        failures += [*differences(fleet), *falsehoods(fleet)]
    failures = watch.breaches + failures
    for failure in failures:
        trace.note(clock.now_us, "seed", f"FAILED: {failure}")
    changes = [] if schedule.change_us is None else ["plan change"]
    return Outcome(
        seed,
        tuple(failures[:_TOLD]),
        min(end.last_wrong_us - end.quiet_us, bound),
        bound,
        shape.lossy,
        trace.digest,
        Counter(fault.kind.value for fault in schedule.faults) + Counter(changes),
        counted(fleet) + (Counter() if injector.operator is None else injector.operator.counts),
    )


class _End:
    """Looks for the time from which on all is true, and that all is from the bound on."""

    def __init__(self, fleet: Fleet, bound_us: int) -> None:
        """`bound_us`: from when it is quiet."""
        self.quiet_us = 0
        self.last_wrong_us = 0
        self.failures: list[str] = []
        """From the bound on."""
        self._fleet = fleet
        self._bound_us = bound_us

    def begin(self) -> None:
        """It is quiet from here on."""
        clock = self._fleet.clock
        self.quiet_us = self.last_wrong_us = clock.now_us
        clock.at(self.quiet_us, Priority.CHECK, self.look)
        clock.at(self.quiet_us + self._bound_us, Priority.CHECK, self._at_bound)
        clock.at(self.quiet_us + self._bound_us + _BEYOND_US, Priority.CHECK, clock.stop)

    def _at_bound(self) -> None:
        """All must be true."""
        self.failures += [f"at its bound {what}" for what in differences(self._fleet)]
        self.failures += [f"at its bound {what}" for what in falsehoods(self._fleet)]

    def look(self) -> None:
        """Look, and look again later."""
        fleet = self._fleet
        wrong = next(differences(fleet), None)
        if wrong is not None:
            self.last_wrong_us = fleet.now_us + _LOOK_US
            if fleet.now_us > self.quiet_us + self._bound_us and len(self.failures) < _TOLD:
                self.failures.append(f"at {fleet.now_us / 1e6:.6f}, beyond its bound, {wrong}")
        elif fleet.now_us - self.last_wrong_us >= _HOLD_US:
            fleet.clock.stop()
        fleet.clock.at(fleet.now_us + _LOOK_US, Priority.CHECK, self.look)
