"""The middle and the tail of what every request took."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds over requests, linear between ranks; None where nothing was measured."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None

    @classmethod
    def of_us(cls, times_us: NDArray[np.int64]) -> "Percentiles":
        """From microseconds, int64[n]."""
        if not len(times_us):
            return cls(None, None, None, None)
        p50, p90, p99 = np.percentile(times_us, (50.0, 90.0, 99.0)) / 1e3
        return cls(float(times_us.mean()) / 1e3, float(p50), float(p90), float(p99))


def curve_ms(times_us: NDArray[np.int64], points: int = 101) -> tuple[float, ...]:
    """Percentiles 0 to 100 in equal steps, ms: a distribution to plot. Empty where nothing was measured."""
    if not len(times_us):
        return ()
    return tuple(np.round(np.percentile(times_us, np.linspace(0.0, 100.0, points)) / 1e3, 3).tolist())
