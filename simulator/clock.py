"""Virtual time: a heap of things to do, in integer microseconds."""

import heapq
from collections.abc import Callable
from enum import IntEnum
from typing import Final

Action = Callable[[], None]

_START_US: Final = 0


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


class Clock:
    """Does what is due, in order of (time, priority, order of asking). Time never goes back."""

    __slots__ = ("_heap", "_sequence", "now_us")

    def __init__(self) -> None:
        self.now_us = _START_US
        self._heap: list[tuple[int, int, int, Action]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, time_us: int, priority: Priority, action: Action) -> None:
        """Have an action done at a time, which must not lie in the past."""
        assert time_us >= self.now_us, "an effect never comes before its cause"
        self._sequence += 1
        heapq.heappush(self._heap, (time_us, priority, self._sequence, action))

    def step(self) -> bool:
        """Do the next thing; False when there is none."""
        if not self._heap:
            return False
        time_us, _, _, action = heapq.heappop(self._heap)
        assert time_us >= self.now_us, "the clock never goes back"
        self.now_us = time_us
        action()
        return True
