"""A worker's full report while it is taken in: what it names is kept, the rest is withdrawn at the end."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U8, U64, Int
from kvcompass.kernels.image import BUCKETS
from kvcompass.kernels.kept import gather_unkept, keep_keys
from kvcompass.kernels.state import HELD, Table

_BUCKETS: Final = 8_192
"""Buckets looked through in one part: 0.2-0.5 ms."""
_KEYS: Final = 256
"""Keys withdrawn in one part, at most."""


class OpenReport:
    """One worker's report to one table. All edits of the worker are told to it, before and after."""

    def __init__(self, slot: int, slots: int) -> None:
        """`slots`: of the table, for entries."""
        self.has_ended = False
        """No more of it comes: what is not kept is withdrawn from now on."""
        self._slot = slot
        self._kept: U8 = np.zeros(-(-slots // 8), np.uint8)
        self._count = 0
        self._bucket: Int = 0

    def before_edit(self, table: Table, keys: U64) -> None:
        """These keys are about to be edited."""
        self._count -= int(keep_keys(table, self._kept, keys, self._slot, 0))

    def after_edit(self, table: Table, keys: U64) -> None:
        """They were: those that the worker holds now are kept."""
        self._count += int(keep_keys(table, self._kept, keys, self._slot, 1))

    def is_complete(self, table: Table) -> bool:
        """It has ended, and the table holds of the worker what was kept and nothing else. O(1)."""
        return self.has_ended and int(table.workers[self._slot, HELD]) == self._count

    def some_unkept(self, table: Table) -> U64:
        """Keys to withdraw, from the next buckets, again and again: some may have moved to buckets behind."""
        keys, buckets = np.empty(_KEYS, np.uint64), int(table.row[BUCKETS])
        first = int(self._bucket) % buckets
        self._bucket, count = gather_unkept(
            table, self._kept, self._slot, first, min(first + _BUCKETS, buckets), keys
        )
        return keys[:count]

    def table_doubled(self) -> None:
        """Entries keep their numbers, and there may be twice as many."""
        self._kept = np.concatenate([self._kept, np.zeros_like(self._kept)])

    def table_replaced(self, old: Table, new: Table) -> None:
        """Another table holds the same keys under other numbers. Costs as much as the table is large."""
        held = old.slot_entry != 0
        entries = old.slot_entry[held] - np.uint32(1)
        kept = (self._kept[entries >> 3] >> (entries & 7).astype(np.uint8)) & 1 != 0
        self._kept = np.zeros(-(-new.slot_entry.size // 8), np.uint8)
        self._count = int(keep_keys(new, self._kept, old.slot_key[held][kept], self._slot, 1))
