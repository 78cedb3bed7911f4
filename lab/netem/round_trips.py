"""Round trips to the other routers, from echoes. No I/O, no clock."""

import statistics
from collections import deque
from typing import Final

_KEPT: Final = 9
"""Answers whose median is told: one late wake-up does not show."""
_OUTSTANDING: Final = 32
"""Echoes that may still be answered; older ones are forgotten."""
_SILENCE_NS: Final = 5_000_000_000
"""Without an answer for so long there is no round trip to tell."""


class RoundTrips:
    """Echoes to one region."""

    __slots__ = ("_answered_ns", "_next", "_samples_ms", "_sent_ns")

    def __init__(self) -> None:
        self._next = 0
        self._sent_ns: dict[int, int] = {}
        self._samples_ms: deque[float] = deque(maxlen=_KEPT)
        self._answered_ns: int | None = None

    def send(self, now_ns: int) -> int:
        """The number of an echo that leaves now."""
        number = self._next
        self._next += 1
        self._sent_ns[number] = now_ns
        self._sent_ns.pop(number - _OUTSTANDING, None)
        return number

    def answered(self, number: int, now_ns: int) -> None:
        """An answer is there. A second one, or one to no echo, is ignored."""
        sent_ns = self._sent_ns.pop(number, None)
        if sent_ns is None:
            return
        if self._silent(now_ns):
            self._samples_ms.clear()
        self._samples_ms.append((now_ns - sent_ns) / 1e6)
        self._answered_ns = now_ns

    def rtt_ms(self, now_ns: int) -> float | None:
        """Median of the last answers, ms; None: silence."""
        return None if self._silent(now_ns) else statistics.median(self._samples_ms)

    def forget(self) -> None:
        """The link has changed: what was measured does not count any more, nor what is on its way."""
        self._sent_ns.clear()
        self._samples_ms.clear()
        self._answered_ns = None

    def _silent(self, now_ns: int) -> bool:
        return self._answered_ns is None or now_ns - self._answered_ns > _SILENCE_NS
