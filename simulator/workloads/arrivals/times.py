"""When requests arrive, apart from what they ask."""

from typing import Protocol


class ArrivalTimes(Protocol):
    """An endless row of instants."""

    @property
    def label(self) -> str:
        """Process and rate."""

    def next_us(self) -> int:
        """The next instant, not before the one before."""
