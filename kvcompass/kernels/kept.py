"""What a worker has been heard to hold since its report began: one bit an entry, for each that reports.

A key is *kept* if the worker has been edited to hold it since then and still does; a worker holds nothing
else when its report has ended. Entries keep their numbers while keys move and tables double, and nobody but
a worker itself takes an entry away that it holds: so the bits stay true, whatever others do in between.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U8, U64, Int
from kvcompass.kernels.buckets import read_value
from kvcompass.kernels.image import SLOTS
from kvcompass.kernels.insertion import find_slot
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.state import Table

_0: Final = np.uint64(0)
_3: Final = np.uint64(3)


@kernel
def keep_keys(
    table: Table,
    kept: U8,
    keys: U64,
    worker_slot: Int,
    wanted: Int,
) -> Int:
    """Set the bits of those keys that a worker holds to `wanted` (0 or 1); how many were not so.

    `kept` is uint8[slots / 8, rounded up]: bit e & 7 of kept[e >> 3] is that of entry e.
    """
    changed = 0
    for i in range(keys.size):
        at = find_slot(table, keys[i])
        if at < 0:
            continue
        value = read_value(table.words, table.row, np.uint64(at >> 2), np.uint64(at & 3))
        entry = np.int64(table.slot_entry[at]) - 1
        bit = (np.int64(kept[entry >> 3]) >> (entry & 7)) & 1
        if (value >> np.uint64(2 * worker_slot)) & _3 != _0 and bit != wanted:
            kept[entry >> 3] = np.uint8(np.int64(kept[entry >> 3]) ^ (1 << (entry & 7)))
            changed += 1
    return changed


@kernel
def gather_unkept(
    table: Table,
    kept: U8,
    worker_slot: Int,
    first: Int,
    end: Int,
    keys: U64,
) -> tuple[Int, Int]:
    """Fill keys[] with what a worker holds in buckets first..end-1 and has not kept.

    Returns (the bucket to go on at, keys found). Stops early when a bucket might not fit any more.
    """
    count = 0
    shift = np.uint64(2 * worker_slot)
    for bucket in range(first, end):
        if keys.size - count < SLOTS:
            return bucket, count
        for j in range(SLOTS):
            at = SLOTS * bucket + j
            entry = np.int64(table.slot_entry[at]) - 1
            if entry < 0 or (np.int64(kept[entry >> 3]) >> (entry & 7)) & 1 != 0:
                continue
            if (read_value(table.words, table.row, np.uint64(bucket), np.uint64(j)) >> shift) & _3 != _0:
                keys[count] = table.slot_key[at]
                count += 1
    return end, count
