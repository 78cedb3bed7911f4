"""What a few seeds say about a figure: a value, and an interval that holds the mean in 19 cases of 20."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev
from typing import Final

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over seeds."""

    value: float
    """Mean of the seeds' values, of which the interval tells and by which policies are ranked."""
    low: float | None
    high: float | None
    """Student's interval of it; None with one seed, which says nothing of it."""
    seeds: int

    @classmethod
    def of(cls, values: Iterable[float | None]) -> "Spread | None":
        """None where no seed measured it."""
        known = [value for value in values if value is not None]
        if not known:
            return None
        if len(known) == 1:
            return cls(known[0], None, None, 1)
        middle = fmean(known)
        half = student_t(len(known) - 1) * stdev(known) / math.sqrt(len(known))
        return cls(middle, middle - half, middle + half, len(known))


@cache
def student_t(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return t such that a variable of Student's distribution lies in [-t, t] with probability `confidence`.

    By bisection: with t = sqrt(freedom) tan(angle), the density is proportional to cos(angle)**(freedom - 1).
    """
    assert freedom >= 1
    assert 0.0 < confidence < 1.0
    whole = _integral(math.pi / 2, freedom)
    low, high = 0.0, math.pi / 2
    while high - low > 1e-12:
        middle = (low + high) / 2
        if _integral(middle, freedom) < confidence * whole:
            low = middle
        else:
            high = middle
    return math.sqrt(freedom) * math.tan(low)


def _integral(angle: float, freedom: int) -> float:
    """Of cos ** (freedom - 1) over [0, angle], by parts: two powers less at a time."""
    power = (freedom - 1) % 2
    value = math.sin(angle) if power else angle
    while power < freedom - 1:
        power += 2
        value = (math.cos(angle) ** (power - 1) * math.sin(angle) + (power - 1) * value) / power
    return value
