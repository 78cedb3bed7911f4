"""Arrivals in bursts."""

from typing import Final

from simulator.streams import random_stream

BURST_FACTOR: Final = 3.0
"""A burst's rate over the calm rate."""
CALM_S: Final = 20.0
BURST_S: Final = 5.0
"""Mean duration of either state."""


class Bursty:
    """A Poisson process of two rates, between which a two-state Markov chain goes to and fro (MMPP-2).

    Exponential stays in each state; the mean rate over both is the given one. An `ArrivalTimes`.
    """

    def __init__(self, rate_per_s: float, seed: int) -> None:
        assert rate_per_s > 0
        self.label = f"bursty {rate_per_s:g}/s (bursts of {BURST_FACTOR:g} times the calm rate)"
        calm = rate_per_s * (CALM_S + BURST_S) / (CALM_S + BURST_FACTOR * BURST_S)
        self._per_us = (calm / 1e6, BURST_FACTOR * calm / 1e6)
        self._stay_us = (1e6 * CALM_S, 1e6 * BURST_S)
        self._exponential = random_stream(seed, "workload.arrivals").expovariate
        self._now_us = 0.0
        self._state = 0
        self._until_us = self._exponential(1 / self._stay_us[0])

    def next_us(self) -> int:
        """See `ArrivalTimes`."""
        while True:
            at_us = self._now_us + self._exponential(self._per_us[self._state])
            if at_us <= self._until_us:
                self._now_us = at_us
                return int(at_us)
            # The gap reaches beyond the state's end. It has no memory: another is drawn from there.
            self._now_us = self._until_us
            self._state = 1 - self._state
            self._until_us += self._exponential(1 / self._stay_us[self._state])
