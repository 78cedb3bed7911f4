"""Where a process's code runs, as that code meets it: the time, and whom it can reach."""

from typing import Any, Protocol

from simulator.clock import Action


class Place(Protocol):
    """All code runs in some region, `here`. Nothing reaches another region but by what is sent there."""

    @property
    def now_us(self) -> int:
        """Virtual time."""

    @property
    def here(self) -> int:
        """Region in which the present code runs."""

    def begin(self, region: int, action: Action, *args: Any) -> None:
        """When the run begins, do `action(*args)` in a region, before anything else happens.

        For what is being made: it is in no region then. In the order of asking.
        """

    def after(self, delay_us: int, action: Action, *args: Any) -> None:
        """Do `action(*args)` here, later."""

    def send_reliably(self, region: int, action: Action, size: int = 0, args: tuple[Any, ...] = ()) -> bool:
        """Do `action(*args)` in a region when a message of `size` bytes has got there over TCP.

        Later instead of lost. False when the regions are parted.
        """

    def count(self, source: int, target: int, size: int) -> None:
        """Count messages that do nothing on arrival, or whose receiver looks when they have arrived."""
