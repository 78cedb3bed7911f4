"""The entries of a shard's tables at one moment, keys and all, gathered a part at a time."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Int
from kvcompass.kernels.image import BUCKETS
from kvcompass.kernels.rebuild import gather_entries
from kvcompass.kernels.state import ENTRIES, Table

_BUCKETS: Final = 16_384
"""Buckets gathered in one part: 0.5-1.5 ms."""
_TABLE: Final = 512
"""Buckets that are gathered in the time of what each table costs besides."""


class FrozenEntries:
    """Keys and values of all tables. Nothing may be edited until they are whole; then they are copies.

    Takes 16 bytes an entry, and a byte a slot of one table meanwhile.
    """

    def __init__(self, tables: Sequence[Table], fields: Sequence[int]) -> None:
        """`fields`: of each table, the bits of values that are kept; a key without any is left out."""
        self._tables = tables
        self._fields = [np.uint64(bits) for bits in fields]
        self._entries: list[tuple[U64, U64]] = []
        self._bucket = 0
        self._count: Int = 0
        self._begin_table()

    @property
    def is_whole(self) -> bool:
        """All is gathered; the tables may be edited again."""
        return len(self._entries) == len(self._tables)

    def tables(self) -> Sequence[tuple[U64, U64]]:
        """Keys and values by table, uint64[n] each, in no particular order. When it is whole."""
        assert self.is_whole
        return self._entries

    def step(self) -> None:
        """Gather the next part, of several tables if they are small."""
        room = _BUCKETS
        while room > 0 and not self.is_whole:
            table = self._tables[len(self._entries)]
            buckets = int(table.row[BUCKETS])
            end = min(self._bucket + room, buckets)
            self._gather(table, self._bucket, end)
            room -= max(end - self._bucket, _TABLE)
            self._bucket = end
            if end == buckets:
                self._entries.append((self._keys[: self._count], self._values[: self._count]))
                self._begin_table()

    def _begin_table(self) -> None:
        if self.is_whole:
            return
        table = self._tables[len(self._entries)]
        self._bucket, self._count = 0, 0
        room = int(table.counts[ENTRIES])
        self._keys, self._values = np.empty(room, np.uint64), np.empty(room, np.uint64)
        self._marked = np.zeros(table.slot_entry.size, np.uint8)

    def _gather(self, table: Table, first: int, end: int) -> None:
        start = self._count
        stop = gather_entries(table, self._marked, self._keys, self._values, start, first, end)
        assert stop >= start, "a table has more entries than it counts"
        values = self._values[start:stop]
        values &= self._fields[len(self._entries)]
        kept = values != 0
        self._count = start + int(np.count_nonzero(kept))
        if self._count < stop:
            self._values[start : self._count] = values[kept]
            self._keys[start : self._count] = self._keys[start:stop][kept]
