"""Log lines that others could cause by the thousand: one a second says how many there were."""

from collections.abc import Callable
from typing import Final

import structlog

from services.runtime.epoch import now_us

_PERIOD_US: Final = 1_000_000


class SparseLog:
    """Writes one line a second of each event, a word of this program; `left_out` counts those before it."""

    def __init__(
        self, log: structlog.typing.FilteringBoundLogger, clock_us: Callable[[], int] = now_us
    ) -> None:
        """`clock_us` is monotonic."""
        self._log = log
        self._clock_us = clock_us
        self._written_us: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    def warning(self, event: str, **fields: object) -> None:
        """Something is not as it should be."""
        if self._is_due(event):
            self._log.warning(event, left_out=self._left_out.pop(event, 0), **fields)

    def info(self, event: str, **fields: object) -> None:
        """Something happened."""
        if self._is_due(event):
            self._log.info(event, left_out=self._left_out.pop(event, 0), **fields)

    def _is_due(self, event: str) -> bool:
        now, written = self._clock_us(), self._written_us.get(event)
        if written is not None and now - written < _PERIOD_US:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return False
        self._written_us[event] = now
        return True
