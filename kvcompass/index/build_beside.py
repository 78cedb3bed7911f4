"""A table built anew beside an old one that goes on taking edits."""

from collections.abc import Iterator
from enum import Enum
from typing import Final

import numpy as np

from kvcompass.index.bulk_build import BulkBuild
from kvcompass.index.shape import TableSize
from kvcompass.index.table_memory import Touching
from kvcompass.kernels.arrays import U64, Int
from kvcompass.kernels.image import BUCKETS
from kvcompass.kernels.rebuild import catch_up, gather_entries
from kvcompass.kernels.state import ENTRIES, Scratch, Table

_BUCKETS: Final = 4_096
"""Buckets gathered in one part."""
_NOTED: Final = 1_024
"""Keys caught up with in one part."""
_TOUCHED: Final = 1 << 20
"""Bytes of working memory made ready in one part."""


class BuildState(Enum):
    """How far a table is."""

    BUILDING = "building"
    DONE = "done"
    """The new table holds what the old one does: it must take its place before the next edit."""
    FAILED = "failed"
    """A key found no place."""


class BuildBeside:
    """The building of one table from another. The old one must be the same from the start to the end."""

    def __init__(self, old: Table, size: TableSize, table_id: int, salt: int, scratch: Scratch) -> None:
        """`size` is that of the new table."""
        self._old = old
        self._scratch = scratch
        self._new = (size, table_id, salt)
        self._noted: list[U64] = []
        self._parts = self._build()
        self.table: Table = old
        """The new table, once it is done."""

    def note(self, keys: U64) -> None:
        """These keys are being edited in the old table."""
        self._noted.append(keys)

    def step(self) -> BuildState:
        """Do one part."""
        return next(self._parts)

    def _build(self) -> Iterator[BuildState]:
        old = self._old
        room = 2 * int(old.counts[ENTRIES]) + _NOTED
        keys, values = np.empty(room, np.uint64), np.empty(room, np.uint64)
        marked = np.zeros(old.slot_entry.size, np.uint8)
        touching = Touching((marked,))
        while not touching.touch(_TOUCHED):
            yield BuildState.BUILDING
        count: Int = 0
        before: Int = -1
        while before != count:
            before = count
            for first in range(0, int(old.row[BUCKETS]), _BUCKETS):
                end = min(first + _BUCKETS, int(old.row[BUCKETS]))
                count = gather_entries(old, marked, keys, values, count, first, end)
                if count < 0:
                    yield BuildState.FAILED
                yield BuildState.BUILDING
        size, table_id, salt = self._new
        build = BulkBuild(size, table_id, salt, old.workers, self._scratch, keys[:count], values[:count])
        for possible in build.parts():
            yield BuildState.BUILDING if possible else BuildState.FAILED
        self.table = build.table
        while self._noted:
            waiting = np.concatenate(self._noted)
            noted, rest = waiting[:_NOTED], waiting[_NOTED:]
            self._noted = [rest] if rest.size else []
            if not catch_up(old, self.table, self._scratch, noted):
                yield BuildState.FAILED
            if self._noted:
                yield BuildState.BUILDING
        whole = self.table.counts[ENTRIES] == old.counts[ENTRIES]  # no key slipped past the scans by moving
        yield BuildState.DONE if whole else BuildState.FAILED
