"""Finding, inserting and removing one key of a writer's table."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import Int
from kvcompass.kernels.buckets import fingerprint, named_bucket, read_seed
from kvcompass.kernels.cuckoo import find_path, make_room, place
from kvcompass.kernels.forest import (
    JOINED,
    RIGHT,
    TOO_LARGE,
    drop_edge,
    flip_is_legal,
    flip_side,
    link_edge,
    pin_edge,
    walk_sides,
)
from kvcompass.kernels.hashing import (
    first_bucket,
    first_node,
    mix_bucket,
    mix_node,
    second_bucket,
    second_node,
    slot_of,
)
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, SALT, read_bit
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.state import ENTRIES, FREE, NEXT, PIN_LIMIT, PINNED, Scratch, Table

_RETRIES: Final = 4


@kernel
def find_slot(table: Table, key: np.uint64) -> Int:
    """Position (4 * bucket + slot) of a present key, else -1: it is always where a view would look."""
    salt: np.uint64 = table.row[SALT]
    return find_mixed(table, key, mix_bucket(key) * salt, mix_node(key) * salt)


@kernel
def find_mixed(table: Table, key: np.uint64, bucket_mix: np.uint64, node_mix: np.uint64) -> Int:
    """`find_slot` of a key whose two mixes, times the table's salt, are known."""
    bucket = named_bucket(table.words, table.row, bucket_mix, node_mix)
    slot = slot_of(node_mix, read_seed(table.words, table.row, bucket))
    at = 4 * np.int64(bucket) + np.int64(slot)
    if table.slot_entry[at] != 0 and table.slot_key[at] == key:
        return at
    return -1


@kernel
def insert(
    table: Table,
    scratch: Scratch,
    key: np.uint64,
    bucket_mix: np.uint64,
    node_mix: np.uint64,
    value: np.uint64,
) -> bool:
    """Insert an absent key of these mixes (times the table's salt).

    False when it finds no place; moves may stand, but no key answers wrongly.
    """
    row = table.row
    counts = table.counts
    scratch.fill[0] = 0
    scratch.fill[1] = 0
    entry: Int = counts[NEXT]
    if counts[FREE] > 0:
        entry = np.int64(table.free[counts[FREE] - 1])
    elif entry == table.free.size:
        return False
    first = np.int64(first_bucket(bucket_mix, row[BUCKETS]))
    second = np.int64(second_bucket(bucket_mix, row[BUCKETS]))
    a = np.int64(first_node(node_mix, row[NODES_A]))
    b = np.int64(second_node(node_mix, row[NODES_A], row[NODES_B]))
    for _ in range(_RETRIES):
        side, count = walk_sides(table, scratch, a, b, -1)
        if side == TOO_LARGE or (side == JOINED and counts[PINNED] == PIN_LIMIT):
            return False
        flippable = first != second and side != JOINED and flip_is_legal(table, scratch, side, count)
        named, other = first, second
        if read_bit(table.words, row, np.uint64(a)) != read_bit(table.words, row, np.uint64(b)):
            named, other = second, first
        found = find_path(table, scratch, named, other if flippable else -1)
        if found < 0:
            return False
        target: Int = scratch.search[found, 0]
        if scratch.search[found, 1] >= 0:
            target = make_room(table, scratch, found)
            if target < 0:
                return False
            named = first
            if read_bit(table.words, row, np.uint64(a)) != read_bit(table.words, row, np.uint64(b)):
                named = second
            if target != named:  # the moves have walked elsewhere since
                side, count = walk_sides(table, scratch, a, b, -1)
                if side == JOINED:
                    continue  # a move flipped the decided bit: look again
                if side > RIGHT or not flip_is_legal(table, scratch, side, count):
                    return False
        if target != named and not flip_side(table, scratch, side, count):
            return False
        if not place(
            table,
            scratch,
            target,
            key,
            node_mix,
            fingerprint(table.words, bucket_mix, node_mix),
            value,
            entry,
        ):
            return False
        if counts[FREE] > 0:
            counts[FREE] -= 1
        else:
            counts[NEXT] += 1
        counts[ENTRIES] += 1
        table.edges[entry, 0] = np.uint32(a)
        table.edges[entry, 1] = np.uint32(b)
        if side == JOINED:
            pin_edge(table, entry)
        else:
            link_edge(table, entry)
        return True
    return False


@kernel
def remove_entry(table: Table, scratch: Scratch, at: Int) -> Int:
    """Forget the key at a position whose value is already zero; returns the entry it had."""
    entry = np.int64(table.slot_entry[at]) - 1
    table.slot_entry[at] = 0
    drop_edge(table, scratch, entry)
    table.free[table.counts[FREE]] = np.uint32(entry)
    table.counts[FREE] += 1
    table.counts[ENTRIES] -= 1
    return entry
