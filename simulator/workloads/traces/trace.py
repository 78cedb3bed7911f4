"""A recorded workload: entries in the order of their file, read when they are needed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from simulator.workloads.traces.row import Row
from simulator.workloads.workload import Turn


@dataclass(frozen=True, slots=True)
class Entry:
    """A request that was recorded, or a whole conversation."""

    at_us: int | None
    """When it began, on any clock of the file's; None where that was not recorded."""
    requests: int
    """In it, all turns."""
    begin: Callable[[int, int], Turn]
    """Makes its first turn, of a given id and arrival. Once."""


Reader = Callable[[], Iterator[Entry]]
"""Opens the file and reads it from its beginning."""


class InOrder:
    """Instants of a file, which must not go back."""

    def __init__(self) -> None:
        self._last_us = 0

    def check(self, row: Row, field: str, at_us: int) -> int:
        """Return the instant, or raise the row's error when it lies before the one before."""
        if at_us < self._last_us:
            raise row.error(field, f"earlier than in the row before; sort the file by {field}")
        self._last_us = at_us
        return at_us


class Trace:
    """Gives a file's entries out as conversations, in order. A `Workload`."""

    def __init__(self, label: str, read: Reader) -> None:
        self.label = label
        self.settle_s = 0.0
        self._entries = read()
        self._next: Entry | None = next(self._entries, None)

    @property
    def due_us(self) -> int | None:
        """When the next conversation began, as recorded; None at the end, or where no time was recorded."""
        return None if self._next is None else self._next.at_us

    def opening(self, id_: int, arrives_us: int) -> Turn | None:
        """See `Workload`."""
        entry = self._next
        if entry is None:
            return None
        self._next = next(self._entries, None)
        return entry.begin(id_, arrives_us)
