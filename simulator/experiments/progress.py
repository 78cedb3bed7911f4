"""How a sweep goes, on one line: requests simulated, requests a second, time left."""

import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from simulator.experiments.cell import Cell

_QUIET_S: Final = 10.0
"""Least time between two lines where nothing can be redrawn."""
_LATELY_S: Final = 60.0
_FORECAST_FROM: Final = 0.03
"""Share of the requests from which on a forecast is told: before, compiling is most of the time."""


class SweepProgress:
    """A `sweep.Progress` on a console. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("simulating", total=None, left="")
        self._ended: dict[Cell, int] = {}
        """Requests of each cell that have ended; of a finished cell all that it was to have."""
        self._cells = 0
        self._wanted = 0
        self._finished = 0
        self._lately: deque[tuple[float, int]] = deque()
        """When so many requests had ended, over the last minute: what comes is as fast as that."""
        self._told_s = 0.0

    def __enter__(self) -> Self:
        """Starts drawing."""
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops drawing."""
        self._bar.stop()

    def planned(self, cells: Sequence[Cell], missing: Sequence[Cell]) -> None:
        """See `sweep.Progress`."""
        self._cells = len(missing)
        self._wanted = sum(cell.expected_requests for cell in missing)
        self._told_s = time.monotonic()
        self._lately.append((self._told_s, 0))
        if kept := len(cells) - len(missing):
            self._console.print(
                f"{kept} of {len(cells)} runs are there already.", highlight=False, soft_wrap=True
            )
        self._bar.update(self._task, total=self._wanted)

    def reached(self, cell: Cell, ended: int) -> None:
        """See `sweep.Progress`."""
        self._ended[cell] = min(ended, cell.expected_requests)
        self._tell(cell)

    def finished(self, cell: Cell) -> None:
        """See `sweep.Progress`."""
        self._ended[cell] = cell.expected_requests
        self._finished += 1
        self._tell(cell)

    def _tell(self, cell: Cell) -> None:
        ended, now_s = sum(self._ended.values()), time.monotonic()
        self._lately.append((now_s, ended))
        while len(self._lately) > 2 and now_s - self._lately[0][0] > _LATELY_S:
            self._lately.popleft()
        began_s, before = self._lately[0]
        a_second = (ended - before) / max(now_s - began_s, 1e-3)
        left = f"{a_second:,.0f} requests/s"
        if ended >= _FORECAST_FROM * self._wanted:
            left += f", {duration((self._wanted - ended) / max(a_second, 1.0))} left"
        runs = f"{self._finished}/{self._cells} runs" if self._cells > 1 else cell.policy
        self._bar.update(self._task, completed=ended, description=runs, left=left)
        if not self._console.is_terminal and now_s - self._told_s >= _QUIET_S:
            self._told_s = now_s
            self._console.print(
                f"{runs}, {ended / self._wanted:.0%}, {left}", highlight=False, soft_wrap=True
            )


def duration(seconds: float) -> str:
    """Say a duration as people do."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60:02d} min"
