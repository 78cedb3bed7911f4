"""A line of the log for each change of what an edge says of itself: its state, and why."""

import asyncio
from typing import Final, NoReturn

from services.edge.readiness import Readiness
from services.runtime.logs import get_logger

_PERIOD_S: Final = 0.25
"""A state that is over sooner may go unlogged; its counters tell of it."""


class StateLog:
    """Looks again and again, and writes what has changed since."""

    def __init__(self, readiness: Readiness) -> None:
        self._readiness = readiness
        self._log = get_logger("state")
        self._last: tuple[str, list[str]] | None = None

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_PERIOD_S)

    def look(self) -> None:
        """Write one line if the state or its reasons are others than at the last look."""
        health = self._readiness.health()
        now = health.state, health.reasons
        if now == self._last:
            return
        was, self._last = self._last, now
        write = self._log.info if health.state == "ready" or was is None else self._log.warning
        write("edge state", state=health.state, reasons=health.reasons)
