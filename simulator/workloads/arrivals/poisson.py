"""Arrivals that know nothing of one another."""

from simulator.streams import random_stream


class Poisson:
    """Exponential gaps. An `ArrivalTimes`."""

    def __init__(self, rate_per_s: float, seed: int) -> None:
        assert rate_per_s > 0
        self.label = f"poisson {rate_per_s:g}/s"
        self._gap_us = random_stream(seed, "workload.arrivals").expovariate
        self._per_us = rate_per_s / 1e6
        self._now_us = 0.0

    def next_us(self) -> int:
        """See `ArrivalTimes`."""
        self._now_us += self._gap_us(self._per_us)
        return int(self._now_us)
