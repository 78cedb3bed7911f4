"""The order of an engine's numbered batches: next, repeated, after a hole, or of another engine process."""

from enum import Enum, auto
from typing import Final

SEQUENCE_MOST: Final = 1 << 40
"""No engine numbers a batch so high: it would take a thousand batches a second for thirty years."""


class Order(Enum):
    """Where a live batch stands."""

    NEXT = auto()
    REPEATED = auto()
    """Already known from a replay."""
    HOLE = auto()
    """Batches before it are missing: they are to be replayed."""
    RESTARTED = auto()
    """The number went back, which a publisher never does: a new engine process counts from 0 again."""


class EngineFeed:
    """Numbers seen from one engine process. An engine names no epoch, so its own order is all there is."""

    __slots__ = ("_live", "applied")

    def __init__(self) -> None:
        self.applied = -1
        """Last batch taken in, live or replayed; -1 before the first."""
        self._live = -1

    def arrived(self, sequence: int) -> Order:
        """Note a batch that came on the live stream, and say how it follows what was taken in."""
        if sequence <= self._live:
            return Order.RESTARTED
        self._live = sequence
        if sequence <= self.applied:
            return Order.REPEATED
        return Order.NEXT if sequence == self.applied + 1 else Order.HOLE

    def reconnected(self) -> None:
        """The live stream broke: what comes next may be anything at or after what was taken in."""
        self._live = -1

    def reset(self) -> None:
        """Another engine process: it counts from 0."""
        self.applied = self._live = -1
