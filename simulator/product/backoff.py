"""Pauses before a stream is opened again: the services' rule, with the run's own randomness."""

from random import Random

from simulator.product.periods import FIRST_PAUSE_US, LONGEST_PAUSE_US


class Backoff:
    """Doubles from the first pause to the longest, each shortened by up to a half at random."""

    __slots__ = ("_pause_us", "_stream")

    def __init__(self, stream: Random) -> None:
        self._stream = stream
        self._pause_us = FIRST_PAUSE_US

    def reset(self) -> None:
        """The stream was of use: begin with short pauses again."""
        self._pause_us = FIRST_PAUSE_US

    def next_us(self, least_us: int = 0) -> int:
        """The next pause; before it is shortened it is at least `least_us`."""
        pause_us = max(self._pause_us, least_us)
        self._pause_us = min(2 * self._pause_us, LONGEST_PAUSE_US)
        return round(pause_us * self._stream.uniform(0.5, 1.0))
