"""Progress on the terminal: which step the lab is at, and how many requests of a replay are answered."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from lab.record import Record


class LabProgress:
    """One line a policy. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<12}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[step]}"),
            console=console,
        )
        self._task = self._progress.add_task("lab", total=None, step="")
        self._errors = 0

    def __enter__(self) -> Self:
        """Starts drawing."""
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stops drawing."""
        if kind is None:
            self._end()
        self._progress.stop()

    def step(self, what: str) -> None:
        """Shows what is going on now: on the line, or as a line of its own where nothing can be redrawn."""
        self._progress.update(self._task, step=what)
        if not self._console.is_terminal:
            self._console.print(f"{self._progress.tasks[self._task].description}: {what}", highlight=False)

    def begin(self, name: str, requests: int) -> None:
        """Starts the line of the next policy."""
        self._end()
        self._errors = 0
        self._task = self._progress.add_task(name, total=requests, step="")

    def advance(self, record: Record) -> None:
        """Counts one answered request."""
        self._errors += bool(record.error)
        step = f"replaying, {self._errors} errors" if self._errors else "replaying"
        self._progress.update(self._task, advance=1, step=step)

    def _end(self) -> None:
        task = self._progress.tasks[self._task]
        total = task.total or 1
        self._progress.update(self._task, total=total, completed=total, step="done")
