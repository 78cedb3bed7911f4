"""Building a table anew beside an old one that goes on taking edits: gathering what it has, and catching up.

Keys move between buckets while they are gathered, so each entry is marked when it is: a pass over all buckets
that finds nothing unmarked has gathered everything. A key that was removed and came back may be gathered
twice; the bulk build keeps one of the two. Every key edited meanwhile is compared again at the end.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I64, U8, U32, U64, Int, Words
from kvcompass.kernels.buckets import put_value, read_value
from kvcompass.kernels.image import SLOTS
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.state import Scratch, Table
from kvcompass.kernels.writer import find_slot, insert, remove_entry

_0: Final = np.uint64(0)


@kernel
def gather_entries(
    words: Words,
    row: U64,
    slot_key: U64,
    slot_entry: U32,
    marked: U8,
    keys: U64,
    values: U64,
    count: Int,
    first: Int,
    end: Int,
) -> Int:
    """Append unmarked entries of buckets first..end-1 to keys[count:] and values, and mark them.

    `marked` is uint8[slots], by entry. Returns the new count, -1 when there is no room for more.
    """
    for at in range(SLOTS * first, SLOTS * end):
        entry = np.int64(slot_entry[at]) - 1
        if entry < 0 or marked[entry] != 0:
            continue
        if count == keys.size:
            return -1
        marked[entry] = 1
        keys[count] = slot_key[at]
        values[count] = read_value(words, row, np.uint64(at >> 2), np.uint64(at & 3))
        count += 1
    return count


@kernel
def catch_up(
    words: Words,
    row: U64,
    slot_key: U64,
    slot_entry: U32,
    edges: U32,
    heads: U32,
    free: U32,
    pins: U32,
    counts: I64,
    workers: U64,
    new_words: Words,
    new_row: U64,
    new_slot_key: U64,
    new_slot_entry: U32,
    new_edges: U32,
    new_heads: U32,
    new_free: U32,
    new_pins: U32,
    new_counts: I64,
    new_workers: U64,
    walk: I64,
    search: I64,
    flipped: I64,
    touched: I64,
    fill: I64,
    group: U64,
    entries: I64,
    keys: U64,
) -> bool:
    """Make the new table hold of each key what the old one holds; False when one finds no place."""
    old = Table(words, row, slot_key, slot_entry, edges, heads, free, pins, counts, workers)
    new = Table(
        new_words,
        new_row,
        new_slot_key,
        new_slot_entry,
        new_edges,
        new_heads,
        new_free,
        new_pins,
        new_counts,
        new_workers,
    )
    scratch = Scratch(walk, search, flipped, touched, fill, group, entries)
    for i in range(keys.size):
        value = _0
        at = find_slot(old, keys[i])
        if at >= 0:
            value = read_value(words, row, np.uint64(at >> 2), np.uint64(at & 3))
        at = find_slot(new, keys[i])
        if at >= 0:
            put_value(new_words, new_row, np.uint64(at >> 2), np.uint64(at & 3), value)
            if value == _0:
                remove_entry(new, scratch, at)
        elif value != _0 and not insert(new, scratch, keys[i], value):
            return False
    return True
