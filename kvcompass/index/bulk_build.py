"""A table built from all its keys at once, in as many parts as the caller likes."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from kvcompass.index.shape import TableSize
from kvcompass.index.table_arrays import new_table
from kvcompass.index.table_memory import Touching, written_at_random
from kvcompass.kernels.arrays import U64
from kvcompass.kernels.bulk import place_keys, settle_bits, settle_buckets
from kvcompass.kernels.rebuild import load_keys
from kvcompass.kernels.state import Scratch, Table

_KEYS: Final = 8_192
_BUCKETS: Final = 4_096
_WORDS: Final = 1_024
"""What one part of each pass takes in: 1-3 ms."""
_TOUCHED: Final = 1 << 20
"""Bytes made ready in one part before the first pass."""


class BulkBuild:
    """The building of one table. The table may be used when all parts are done and none has failed."""

    def __init__(
        self,
        size: TableSize,
        table_id: int,
        salt: int,
        workers: U64,
        scratch: Scratch,
        keys: U64,
        values: U64,
    ) -> None:
        """`values` (uint64) are not zero; `workers` is kept as it is, not counted anew."""
        self.table: Final[Table] = new_table(size, table_id, salt, workers)
        self._size = size
        self._scratch = scratch
        self._keys = keys
        self._values = values

    def parts(self) -> Iterator[bool]:
        """Do one part at a time; each yields whether the table can still be built with this salt and size."""
        table, keys, values = self.table, self._keys, self._values
        left = np.zeros(keys.size + 1, np.int64)
        links = np.zeros(self._size.nodes, np.uint32)
        touching = Touching((*written_at_random(table), links))
        while not touching.touch(_TOUCHED):
            yield True
        for first in range(0, keys.size, _KEYS):
            end = min(first + _KEYS, keys.size)
            place_keys(table, keys, left, first, end)
            yield True
        for first in range(0, self._size.buckets, _BUCKETS):
            end = min(first + _BUCKETS, self._size.buckets)
            yield settle_buckets(table, self._scratch, links, values, left, first, end)
        words = self._size.value_offset
        for first in range(0, words, _WORDS):
            settle_bits(table.words, table.row, links, first, min(first + _WORDS, words))
            yield True
        over = left[1 : int(left[0]) + 1]
        yield load_keys(table, self._scratch, keys[over], values[over]) == over.size

    def run(self) -> bool:
        """Do all that is left; whether the table was built."""
        return all(self.parts())
