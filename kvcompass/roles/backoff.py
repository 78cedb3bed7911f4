"""How long is waited before a connection that broke is tried again: capped pauses with jitter."""

from random import Random
from typing import Final

from kvcompass.roles.messages import STREAM_FIELD

FIRST_PAUSE_US: Final = 100_000
LONGEST_PAUSE_US: Final = 2_000_000
"""A healed partition is noticed within this time."""
REFUSED_US: Final = 5_000_000
"""A refusal of what a component is lasts until somebody changes a plan."""


class Backoff:
    """Doubles from the first pause to the longest, each shortened by up to a half at random."""

    __slots__ = ("_jitter", "_pause_us")

    def __init__(self, jitter: Random) -> None:
        self._jitter = jitter
        self._pause_us = FIRST_PAUSE_US

    def reset(self) -> None:
        """The connection was of use: begin with short pauses again."""
        self._pause_us = FIRST_PAUSE_US

    def next_us(self, least_us: int = 0) -> int:
        """The next pause, us; before its jitter it is at least `least_us`."""
        pause_us = max(self._pause_us, least_us)
        self._pause_us = min(2 * self._pause_us, LONGEST_PAUSE_US)
        return round(pause_us * self._jitter.uniform(0.5, 1.0))


def refused_us(refused_field: str) -> int:
    """How long to wait at least after a refusal of a field, us; a new stream may be opened at once."""
    return 0 if refused_field == STREAM_FIELD else REFUSED_US
