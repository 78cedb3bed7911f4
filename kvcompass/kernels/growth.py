"""The writer's side of doubling: a table of twice the size is built beside the first, a slice at a time.

The first table goes on taking edits and answering; the one beside it (`wide`) follows. Buckets below
counts[SPLIT] are split, and are split again whenever an edit touches them. An entry is known to `wide` when
edges[entry, 1], a node of B and so never 0, is written: it is then linked, or pinned because it was pinned in
the first table. The linked edges of `wide` are at all times some of the first table's linked edges, and
splitting nodes closes no cycle, so they are a forest. At the end each pin is linked if its ends have parted.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U32, Int
from kvcompass.kernels.forest import link_edge, promote_pins, unlink_edge
from kvcompass.kernels.hashing import (
    first_bucket,
    first_node,
    mix_bucket,
    mix_node,
    second_bucket,
    second_node,
)
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, SALT, SLOTS, bit_words, read_bit
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.patch_records import GROUP_HEADER, begin_split, put_split, write_spread
from kvcompass.kernels.prefetch import prefetch
from kvcompass.kernels.split import split_bucket, spread_words
from kvcompass.kernels.state import (
    ENTRIES,
    FLIPS,
    FREE,
    MOVES,
    NEXT,
    PIN_LIMIT,
    PINNED,
    PINNED_EVER,
    SPLIT,
    SPREAD,
    Scratch,
    Table,
)

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_4: Final = np.uint64(4)

_AHEAD: Final = 8
"""Buckets between the one being split and the one whose memory is asked for."""
LOST: Final = -1
"""counts[PINNED] of a `wide` that met more pins than it can hold: it must not be used."""


@kernel
def is_growing(wide: Table) -> bool:
    """Whether a table beside another is in use; else it is blank."""
    in_use: bool = wide.row[BUCKETS] != _0
    return in_use


@kernel
def split_entries(table: Table, wide: Table, bucket: Int) -> np.uint64:
    """Split a bucket, its keys and entries into `wide`; returns the split bits."""
    row = table.row
    split = _0
    for j in range(2 * SLOTS):
        wide.slot_entry[2 * SLOTS * bucket + j] = 0
    for j in range(SLOTS):
        at = SLOTS * bucket + j
        if table.slot_entry[at] == 0:
            continue
        key: np.uint64 = table.slot_key[at]
        bucket_mix = mix_bucket(key) * row[SALT]
        node_mix = mix_node(key) * row[SALT]
        second = np.int64(second_bucket(bucket_mix, row[BUCKETS])) == bucket
        if second and np.int64(first_bucket(bucket_mix, row[BUCKETS])) == bucket:
            a = first_node(node_mix, row[NODES_A])
            b = second_node(node_mix, row[NODES_A], row[NODES_B])
            second = read_bit(table.words, row, a) != read_bit(table.words, row, b)
        child = first_bucket(bucket_mix, wide.row[BUCKETS])
        if second:
            child = second_bucket(bucket_mix, wide.row[BUCKETS])
        split |= (child & _1) << np.uint64(j)
        wide.slot_key[SLOTS * np.int64(child) + j] = key
        wide.slot_entry[SLOTS * np.int64(child) + j] = table.slot_entry[at]
        _know(table, wide, np.int64(table.slot_entry[at]) - 1, node_mix)
    split_bucket(table.words, row, wide.words, wide.row, np.uint64(bucket), split)
    return split


@kernel
def _know(table: Table, wide: Table, entry: Int, node_mix: np.uint64) -> None:
    """Link an entry in `wide`, or pin it there if it is pinned in the first table."""
    if wide.edges[entry, 1] != 0 or wide.counts[PINNED] == LOST:
        return
    wide.edges[entry, 0] = first_node(node_mix, wide.row[NODES_A])
    wide.edges[entry, 1] = second_node(node_mix, wide.row[NODES_A], wide.row[NODES_B])
    for i in range(table.counts[PINNED]):
        if np.int64(table.pins[i]) == entry:
            if wide.counts[PINNED] == wide.pins.size:
                wide.counts[PINNED] = LOST
            else:
                wide.pins[wide.counts[PINNED]] = np.uint32(entry)
                wide.counts[PINNED] += 1
            return
    link_edge(wide, entry)


@kernel
def forget_entry(wide: Table, entry: Int) -> None:
    """Take a removed entry out of `wide`, if it is known there."""
    if not is_growing(wide) or wide.edges[entry, 1] == 0 or wide.counts[PINNED] == LOST:
        return
    pinned = False
    for i in range(wide.counts[PINNED]):
        if np.int64(wide.pins[i]) == entry:
            wide.counts[PINNED] -= 1
            wide.pins[i] = wide.pins[wide.counts[PINNED]]
            pinned = True
            break
    if not pinned:
        unlink_edge(wide, entry)
    wide.edges[entry, 1] = 0


@kernel
def _ask_for_entries(table: Table, wide: Table, bucket: Int) -> None:
    """Ask for the memory of `wide` that a bucket's keys will be linked in: it lies anywhere."""
    for at in range(SLOTS * bucket, SLOTS * (bucket + 1)):
        if table.slot_entry[at] != 0:
            node_mix = mix_node(table.slot_key[at]) * table.row[SALT]
            prefetch(wide.edges, _4 * np.uint64(table.slot_entry[at]) - _4)
            prefetch(wide.heads, first_node(node_mix, wide.row[NODES_A]))
            prefetch(wide.heads, second_node(node_mix, wide.row[NODES_A], wide.row[NODES_B]))


@kernel
def grow_slice(table: Table, wide: Table, buckets: Int, table_id: Int, out: U32) -> Int:
    """Split up to `buckets` more buckets, and a like share of the Othello bits; one group.

    Returns the words written to `out`, which must have room for buckets/8 + 16.
    """
    row = table.row
    all_buckets = np.int64(row[BUCKETS])
    first: Int = wide.counts[SPLIT]
    end = min(all_buckets, first + buckets)
    spread_from: Int = wide.counts[SPREAD]
    all_words = bit_words(table.words, np.int64(row[NODES_A] + row[NODES_B]))
    spread_to = all_words if end == all_buckets else min(all_words, spread_from + 3 * (end - first))
    spread_words(table.words, row, wide.words, wide.row, spread_from, spread_to)
    wide.counts[SPREAD] = spread_to
    at = write_spread(out, GROUP_HEADER, table_id, spread_from, spread_to - spread_from)
    at = begin_split(out, at, table_id, first, end - first)
    begin = at - ((end - first) + 7) // 8
    for bucket in range(first, end):
        if bucket + _AHEAD < all_buckets:
            _ask_for_entries(table, wide, bucket + _AHEAD)
        put_split(out, begin, bucket - first, split_entries(table, wide, bucket))
    wide.counts[SPLIT] = end
    out[0] = np.uint32(at)
    out[1] = np.uint32(2)
    return at


@kernel
def finish_growth(wide: Table, scratch: Scratch, old: Table) -> bool:
    """Make a table that has split every bucket of the old one ready to take its place.

    False if it must not: it has more pins than a table may have.
    """
    if wide.counts[PINNED] == LOST:
        return False
    promote_pins(wide, scratch)
    if wide.counts[PINNED] > PIN_LIMIT:
        return False
    for i in range(old.counts[FREE]):
        wide.free[i] = old.free[i]
    for column in (FREE, NEXT, ENTRIES, PINNED_EVER, MOVES, FLIPS):
        wide.counts[column] = old.counts[column]
    return True
