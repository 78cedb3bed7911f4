"""Building a table anew beside an old one that goes on taking edits: gathering what it has, and catching up.

Keys move between buckets while they are gathered, so each entry is marked when it is: a pass over all buckets
that finds nothing unmarked has gathered everything. A key that was removed and came back may be gathered
twice; the bulk build keeps one of the two. Every key edited meanwhile is compared again at the end.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U8, U64, Int
from kvcompass.kernels.buckets import put_value, read_value
from kvcompass.kernels.hashing import mix_bucket, mix_node
from kvcompass.kernels.image import SALT, SLOTS
from kvcompass.kernels.insertion import find_mixed, find_slot, insert, remove_entry
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.state import Scratch, Table

_0: Final = np.uint64(0)


@kernel
def gather_entries(table: Table, marked: U8, keys: U64, values: U64, count: Int, first: Int, end: Int) -> Int:
    """Append unmarked entries of buckets first..end-1 to keys[count:] and values, and mark them.

    `marked` is uint8[slots], by entry. Returns the new count, -1 when there is no room for more.
    """
    for at in range(SLOTS * first, SLOTS * end):
        entry = np.int64(table.slot_entry[at]) - 1
        if entry < 0 or marked[entry] != 0:
            continue
        if count == keys.size:
            return -1
        marked[entry] = 1
        keys[count] = table.slot_key[at]
        values[count] = read_value(table.words, table.row, np.uint64(at >> 2), np.uint64(at & 3))
        count += 1
    return count


@kernel
def catch_up(old: Table, new: Table, scratch: Scratch, keys: U64) -> bool:
    """Make the new table hold of each key what the old one holds; False when one finds no place."""
    for i in range(keys.size):
        value = _0
        at = find_slot(old, keys[i])
        if at >= 0:
            value = read_value(old.words, old.row, np.uint64(at >> 2), np.uint64(at & 3))
        bucket_mix = mix_bucket(keys[i]) * new.row[SALT]
        node_mix = mix_node(keys[i]) * new.row[SALT]
        at = find_mixed(new, keys[i], bucket_mix, node_mix)
        if at >= 0:
            put_value(new.words, new.row, np.uint64(at >> 2), np.uint64(at & 3), value)
            if value == _0:
                remove_entry(new, scratch, at)
        elif value != _0 and not insert(new, scratch, keys[i], bucket_mix, node_mix, value):
            return False
    return True


@kernel
def load_keys(table: Table, scratch: Scratch, keys: U64, values: U64) -> Int:
    """Insert keys, but those that are there already; how many found a place. `workers` is left as it is."""
    for i in range(keys.size):
        bucket_mix = mix_bucket(keys[i]) * table.row[SALT]
        node_mix = mix_node(keys[i]) * table.row[SALT]
        if find_mixed(table, keys[i], bucket_mix, node_mix) < 0 and not insert(
            table, scratch, keys[i], bucket_mix, node_mix, values[i]
        ):
            return i
    return keys.size
