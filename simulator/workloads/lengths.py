"""Laws of lengths: lognormal, as lengths of texts mostly are, between two bounds."""

import random
from dataclasses import dataclass
from math import exp, log, log1p, sqrt


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal lengths in tokens, each cut off at both ends."""

    median: float
    spread: float
    """Standard deviation of the logarithm."""
    least: int = 1
    most: int = 32_768

    @classmethod
    def by_mean(cls, mean: float, deviation: float, *, most: int = 32_768) -> "Lengths":
        """Return the law of this mean and standard deviation, before it is cut off."""
        variance = log1p((deviation / mean) ** 2)
        return cls(exp(log(mean) - variance / 2), sqrt(variance), most=most)

    def draw(self, stream: random.Random) -> int:
        """Draw one length."""
        length = int(self.median * exp(stream.gauss(0.0, self.spread)) + 0.5)
        if length <= self.least:
            return self.least
        return length if length < self.most else self.most
