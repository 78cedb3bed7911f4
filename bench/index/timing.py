"""Time of many calls, on one clock: the wall, or this thread's share of a processor."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final

import numpy as np

CLOCKS: Final[dict[str, Callable[[], int]]] = {"wall": perf_counter_ns, "cpu": thread_time_ns}
"""Nanoseconds. `cpu` leaves out what other processes took, and costs some 0.3 us a call more."""
_clock = CLOCKS["wall"]


def use_clock(name: str) -> None:
    """Choose the clock of all timings that follow."""
    global _clock
    _clock = CLOCKS[name]


def clock_ns() -> int:
    """Now, on the chosen clock."""
    return _clock()


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds an operation, over calls of one or more operations each."""

    p50_us: float
    p99_us: float
    operations: int

    @property
    def per_s(self) -> float:
        """Operations a second at the median."""
        return 1e6 / self.p50_us


def timed(call: Callable[[Any], object], arguments: Iterable[Any], operations: int = 1) -> Timing:
    """Time `call` once for each argument; a call does `operations` operations."""
    took, clock = [], _clock
    with quiet():
        for argument in arguments:
            began = clock()
            call(argument)
            took.append(clock() - began)
    return timing(took, operations)


def timing(took_ns: list[int], operations: int = 1) -> Timing:
    """Percentiles of calls that were timed elsewhere."""
    p50, p99 = np.percentile(np.array(took_ns) / operations / 1e3, (50, 99))
    return Timing(float(p50), float(p99), len(took_ns) * operations)


def once_ms(call: Callable[[], object]) -> float:
    """Milliseconds of one long call."""
    with quiet():
        began = clock_ns()
        call()
        return (clock_ns() - began) / 1e6


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection meanwhile: with 1e7 Python objects about, one takes a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
