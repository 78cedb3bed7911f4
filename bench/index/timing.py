"""Wall time of many calls."""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import numpy as np


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
    took = []
    with quiet():
        for argument in arguments:
            began = perf_counter_ns()
            call(argument)
            took.append(perf_counter_ns() - began)
    return timing(took, operations)


def timing(took_ns: list[int], operations: int = 1) -> Timing:
    """Percentiles of calls that were timed elsewhere."""
    p50, p99 = np.percentile(np.array(took_ns) / operations / 1e3, (50, 99))
    return Timing(float(p50), float(p99), len(took_ns) * operations)


def once_ms(call: Callable[[], object]) -> float:
    """Milliseconds of one long call."""
    with quiet():
        began = perf_counter_ns()
        call()
        return (perf_counter_ns() - began) / 1e6


@contextmanager
def quiet() -> Iterator[None]:
    """No garbage collection meanwhile: with 1e7 Python objects about, one takes a second."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
