"""Keeps the unit's own snapshot on disk up to date: at a period, and a last time when the process drains."""

import asyncio
import time
from collections import Counter
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from kvcompass.roles.maintenance_unit import MaintenanceUnit
from kvcompass.roles.unit_capture import UnitCapture
from kvcompass.roles.unit_snapshot_bytes import RestoreOutcome
from services.runtime.daemon_thread import in_daemon_thread
from services.runtime.disk import Disk
from services.runtime.logs import get_logger
from services.runtime.whole_file import write_whole

_LOOK_S: Final = 0.005
"""Between two looks whether the unit's ticks have copied all."""

_log = get_logger("snapshot")


class WriteFailure(StrEnum):
    """Why a snapshot was not written. A closed set: it is a metric's label."""

    DISK = "disk"
    """The file system refused."""
    TIMEOUT = "timeout"
    """The process ended before it was written."""


class SnapshotKeeper:
    """One file. The loop copies the unit's tables in parts; a thread encodes the copy and writes it."""

    def __init__(
        self,
        unit: MaintenanceUnit,
        path: Path,
        disk: Disk,
        outcome: RestoreOutcome,
        *,
        period_s: float,
        size: int = 0,
    ) -> None:
        """`outcome`: of the unit's start from this file. `size`: bytes of it, if it was restored."""
        self.period_s = period_s
        """At which it is to be written, s."""
        self.outcome = outcome
        self.size = size
        """Bytes of the file, 0 when there is none."""
        self.write_s = 0.0
        """What the last writing took, copying included, s."""
        self.writes = 0
        self.failures: Counter[WriteFailure] = Counter()
        """Both count, and are monotonic."""
        self._unit = unit
        self._path = path
        self._disk = disk
        self._writing = asyncio.Lock()
        self._written: int | None = None
        """Sequence of what is in the file, None when this unit has not written it."""
        self._true_s = time.monotonic()

    @property
    def age_s(self) -> float:
        """Since the file had all that the unit holds; since the start where it never had."""
        return time.monotonic() - self._true_s

    def facts(self) -> dict[str, object]:
        """For /health."""
        return {
            "path": str(self._path),
            "start": self.outcome.value,
            "age_s": round(self.age_s, 3),
            "period_s": self.period_s,
            "write_s": round(self.write_s, 3),
            "bytes": self.size,
            "writes": self.writes,
            "failures": sum(self.failures.values()),
        }

    async def keep(self) -> None:
        """Writes at the period, for ever."""
        while True:
            await asyncio.sleep(self.period_s)
            await self.write()

    async def write_last(self, timeout_s: float) -> None:
        """Writes what there is at the end of the process, if it can be done in that time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self.write()
        except TimeoutError:
            self.failures[WriteFailure.TIMEOUT] += 1
            _log.error(
                "the last snapshot was not written in time: the next start has the one before;"
                " raise snapshot.drain_s, or look at the disk",
                path=str(self._path),
                timeout_s=timeout_s,
            )

    async def write(self) -> None:
        """Writes the file anew, if anything has changed. Only a unit that has settled has a snapshot."""
        async with self._writing:
            began_s = time.monotonic()
            if self._written == self._unit.sequence:
                self._true_s = began_s
                return
            capture = self._unit.capture()
            if capture is None:
                return
            while not capture.is_whole:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
            try:
                await in_daemon_thread(partial(self._write_file, capture), "snapshot")
            except OSError as error:
                self.failures[WriteFailure.DISK] += 1
                _log.error(
                    "the unit's own snapshot could not be written: the file before it stays; see to the disk",
                    path=str(self._path),
                    error=error.strerror,
                )
                return
            self.writes += 1
            self._written, self._true_s = capture.head.sequence, began_s
            self.write_s = time.monotonic() - began_s
            _log.info(
                "snapshot written",
                path=str(self._path),
                bytes=self.size,
                sequence=self._written,
                ms=round(1e3 * self.write_s),
            )

    def _write_file(self, capture: UnitCapture) -> None:
        self.size = write_whole(self._disk, self._path, capture.parts())
