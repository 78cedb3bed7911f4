"""Shares of a core that processes take (Linux)."""

import os
import time
from pathlib import Path

from lab.process import LabProcess


class Shares:
    """What processes take from here on, as the kernel books it: in hundredths of a second."""

    def __init__(self, processes: list[LabProcess]) -> None:
        self._processes = processes
        self._before = self._booked_s()
        self._began = time.monotonic()

    def taken(self) -> dict[str, float]:
        """Until now, by the process's name."""
        seconds = time.monotonic() - self._began
        return {name: (booked - self._before[name]) / seconds for name, booked in self._booked_s().items()}

    def _booked_s(self) -> dict[str, float]:
        tick = os.sysconf("SC_CLK_TCK")
        booked = {}
        for process in self._processes:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            booked[process.spec.name] = (int(fields[11]) + int(fields[12])) / tick
        return booked
