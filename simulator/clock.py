"""Virtual time: a heap of things to do, in integer microseconds."""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush
from typing import Any, Final

Action = Callable[..., None]
"""Something to do. What it is given then is kept beside it, which is cheaper than a closure."""

_START_US: Final = 0
_BAND: Final = 1 << 48
"""More things than a run ever does: priority and order of asking are one number in the heap."""


class Priority(IntEnum):
    """Order within one instant, so that what is caused comes after its cause."""

    ENGINE = 0
    """What an engine has finished, before anybody asks it."""
    MESSAGE = 1
    """What arrives is known before what is decided in the same instant."""
    TIMER = 2
    """Periods: reports, ticks, broadcasts."""
    ARRIVAL = 3
    """New requests see everything that happened until then."""
    CHECK = 4
    """Laws are looked at when nothing more happens in the instant."""


_FIRST: Final = tuple(priority * _BAND for priority in Priority)


class Clock:
    """Does what is due, in order of (time, priority, order of asking). Time never goes back."""

    __slots__ = ("_heap", "_runs", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = _START_US
        self._heap: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._sequence = 0
        self._runs = False

    def at(self, time_us: int, priority: Priority, action: Action, *args: Any) -> None:
        """Have `action(*args)` done at a time, which must not lie in the past."""
        assert time_us >= self.now_us, "an effect never comes before its cause"
        self._sequence = sequence = self._sequence + 1
        heappush(self._heap, (time_us, _FIRST[priority] + sequence, action, args))

    def run(self) -> None:
        """Do one thing after the other until there is none, or `stop` is called."""
        heap = self._heap
        self._runs = True
        while self._runs and heap:
            time_us, _, action, args = heappop(heap)
            assert time_us >= self.now_us, "the clock never goes back"
            self.now_us = time_us
            action(*args)

    def stop(self) -> None:
        """Let `run` return when what is being done is done."""
        self._runs = False
