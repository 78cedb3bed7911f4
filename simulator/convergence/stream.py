"""A stream between two processes, as its connection breaks."""

from typing import Protocol, runtime_checkable

from simulator.clock import Action


@runtime_checkable
class Stream(Protocol):
    """The end that dialled. What belongs to an attempt that has been given up is passed over."""

    @property
    def attempt(self) -> int:
        """The present one."""

    @property
    def is_open(self) -> bool:
        """Opened, as far as this end knows."""

    @property
    def far_end(self) -> Action:
        """What tells the other end that an attempt has ended: called with the stream and the attempt."""

    def hung_up(self, attempt: int) -> None:
        """The connection broke."""
