"""The writer's entry points: batches of edits to one table, the clearing of a worker, bulk loading."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I64, U8, U32, U64, Int, Words
from kvcompass.kernels.buckets import named_bucket, put_value, read_seed, read_value
from kvcompass.kernels.cuckoo import find_path, make_room, place
from kvcompass.kernels.forest import (
    JOINED,
    LEFT,
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
from kvcompass.kernels.patch_records import (
    BUCKET_WORDS_MOST,
    GROUP_HEADER,
    NODES,
    write_bucket,
    write_value,
)
from kvcompass.kernels.state import (
    ENTRIES,
    FLIPPED_LIMIT,
    FREE,
    PIN_LIMIT,
    PINNED,
    TOUCHED_LIMIT,
    Scratch,
    Table,
)

DONE: Final = 0
"""All edits are made."""
DRAIN: Final = 1
"""`out` is nearly full: take it and go on with the rest."""
FULL: Final = 2
"""The next key finds no place: the table must be rebuilt."""

LONGEST_GROUP: Final = GROUP_HEADER + 2 + FLIPPED_LIMIT + BUCKET_WORDS_MOST * TOUCHED_LIMIT
"""Words of the longest group an edit can yield."""
_RETRIES: Final = 4

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_3: Final = np.uint64(3)


@kernel
def find_slot(table: Table, key: np.uint64) -> Int:
    """Position (4 * bucket + slot) of a present key, else -1: it is always where a view would look."""
    bucket_mix = mix_bucket(key ^ table.row[SALT])
    node_mix = mix_node(key ^ table.row[SALT])
    bucket = named_bucket(table.words, table.row, bucket_mix, node_mix)
    slot = slot_of(node_mix, read_seed(table.words, table.row, bucket))
    at = 4 * np.int64(bucket) + np.int64(slot)
    if table.slot_entry[at] != 0 and table.slot_key[at] == key:
        return at
    return -1


@kernel
def insert(table: Table, scratch: Scratch, key: np.uint64, value: np.uint64) -> bool:
    """Insert an absent key. False when it finds no place; moves may stand, but no key answers wrongly."""
    row = table.row
    counts = table.counts
    scratch.fill[0] = 0
    scratch.fill[1] = 0
    if counts[FREE] == 0:
        return False
    entry = np.int64(table.free[counts[FREE] - 1])
    bucket_mix = mix_bucket(key ^ row[SALT])
    node_mix = mix_node(key ^ row[SALT])
    first = np.int64(first_bucket(bucket_mix, row[BUCKETS]))
    second = np.int64(second_bucket(bucket_mix, row[BUCKETS]))
    a = np.int64(first_node(node_mix, row[NODES_A]))
    b = np.int64(second_node(node_mix, row[NODES_A], row[NODES_B]))
    single = first == second
    for _ in range(_RETRIES):
        side: Int = LEFT
        count: Int = 0
        flippable = False
        if not single:
            side, count = walk_sides(table, scratch, a, b, -1)
            if side == JOINED and counts[PINNED] == PIN_LIMIT:
                return False
            if side == TOO_LARGE:
                return False
            flippable = side != JOINED and flip_is_legal(table, scratch, side, count)
        named, other = first, second
        if read_bit(table.words, row, np.uint64(a)) != read_bit(table.words, row, np.uint64(b)):
            named, other = second, first
        found = find_path(table, scratch, named, other if flippable else -1)
        if found < 0:
            return False
        target = make_room(table, scratch, found)
        if target < 0:
            return False
        named = first
        if read_bit(table.words, row, np.uint64(a)) != read_bit(table.words, row, np.uint64(b)):
            named = second
        if not single and target != named:
            side, count = walk_sides(table, scratch, a, b, -1)
            if side == JOINED:
                continue  # a move flipped the decided bit: look again
            if side > RIGHT or not flip_is_legal(table, scratch, side, count):
                return False
            if not flip_side(table, scratch, side, count):
                return False
        if not place(table, scratch, target, key, value, entry):
            return False
        counts[FREE] -= 1
        counts[ENTRIES] += 1
        if not single:
            table.edges[entry, 0] = np.uint32(a)
            table.edges[entry, 1] = np.uint32(b)
            if side == JOINED:
                pin_edge(table, entry)
            else:
                link_edge(table, entry)
        return True
    return False


@kernel
def release(table: Table, scratch: Scratch, at: Int) -> None:
    """Forget the key at a position whose value is already zero."""
    entry = np.int64(table.slot_entry[at]) - 1
    bucket_mix = mix_bucket(table.slot_key[at] ^ table.row[SALT])
    table.slot_entry[at] = 0
    if first_bucket(bucket_mix, table.row[BUCKETS]) != second_bucket(bucket_mix, table.row[BUCKETS]):
        drop_edge(table, scratch, entry)
    table.free[table.counts[FREE]] = np.uint32(entry)
    table.counts[FREE] += 1
    table.counts[ENTRIES] -= 1


@kernel
def _seen_before(values: I64, at: Int) -> bool:
    for i in range(at):  # noqa: SIM110
        if values[i] == values[at]:
            return True
    return False


@kernel
def edit_keys(
    words: Words,
    row: U64,
    slot_key: U64,
    slot_entry: U32,
    edges: U32,
    heads: U32,
    free: U32,
    pins: U32,
    counts: I64,
    walk: I64,
    search: I64,
    flipped: I64,
    touched: I64,
    fill: I64,
    group: U64,
    entries: I64,
    keys: U64,
    tiers: U8,
    start: Int,
    table_id: Int,
    worker_slot: Int,
    out: U32,
    at: Int,
) -> tuple[Int, Int, Int, Int]:
    """Set one worker's field of keys[start:]; one patch group for each edit that changes something.

    Returns (edits made, end of `out`, groups written, DONE | DRAIN | FULL).
    """
    table = Table(words, row, slot_key, slot_entry, edges, heads, free, pins, counts)
    scratch = Scratch(walk, search, flipped, touched, fill, group, entries)
    shift = np.uint64(2 * worker_slot)
    groups = 0
    for i in range(start, keys.size):
        if out.size - at < LONGEST_GROUP:
            return i, at, groups, DRAIN
        field = np.uint64(tiers[i]) << shift
        place_of_key = find_slot(table, keys[i])
        end = at + GROUP_HEADER
        records = 1
        if place_of_key < 0:
            if field == _0:
                continue
            if not insert(table, scratch, keys[i], field):
                return i, at, groups, FULL
            records = 0
            if fill[0] > 0:
                out[end] = np.uint32(NODES | (table_id << 8))
                out[end + 1] = np.uint32(fill[0])
                for j in range(fill[0]):
                    node = np.uint64(flipped[j])
                    out[end + 2 + j] = np.uint32((node << _1) | read_bit(words, row, node))
                end += 2 + fill[0]
                records = 1
            for j in range(fill[1]):
                if not _seen_before(touched, j):
                    end = write_bucket(out, end, words, row, table_id, np.uint64(touched[j]))
                    records += 1
        else:
            bucket = np.uint64(place_of_key >> 2)
            slot = np.uint64(place_of_key & 3)
            old = read_value(words, row, bucket, slot)
            new = (old & ~(_3 << shift)) | field
            if new == old:
                continue
            put_value(words, row, bucket, slot, new)
            if new == _0:
                release(table, scratch, place_of_key)
            end = write_value(out, end, words, table_id, bucket, slot, new)
        out[at] = np.uint32(end - at)
        out[at + 1] = np.uint32(records)
        at = end
        groups += 1
    return keys.size, at, groups, DONE


@kernel
def load_keys(
    words: Words,
    row: U64,
    slot_key: U64,
    slot_entry: U32,
    edges: U32,
    heads: U32,
    free: U32,
    pins: U32,
    counts: I64,
    walk: I64,
    search: I64,
    flipped: I64,
    touched: I64,
    fill: I64,
    group: U64,
    entries: I64,
    keys: U64,
    values: U64,
) -> Int:
    """Insert distinct keys into an empty table; how many found a place."""
    table = Table(words, row, slot_key, slot_entry, edges, heads, free, pins, counts)
    scratch = Scratch(walk, search, flipped, touched, fill, group, entries)
    for i in range(keys.size):
        if not insert(table, scratch, keys[i], values[i]):
            return i
    return keys.size


@kernel
def clear_keys(
    words: Words,
    row: U64,
    slot_key: U64,
    slot_entry: U32,
    edges: U32,
    heads: U32,
    free: U32,
    pins: U32,
    counts: I64,
    walk: I64,
    search: I64,
    flipped: I64,
    touched: I64,
    fill: I64,
    group: U64,
    entries: I64,
    worker_slot: Int,
) -> Int:
    """Zero one worker's field everywhere and forget keys whose value becomes zero; the keys changed."""
    table = Table(words, row, slot_key, slot_entry, edges, heads, free, pins, counts)
    scratch = Scratch(walk, search, flipped, touched, fill, group, entries)
    mask = ~(_3 << np.uint64(2 * worker_slot))
    changed = 0
    for at in range(slot_entry.size):
        if slot_entry[at] == 0:
            continue
        bucket = np.uint64(at >> 2)
        slot = np.uint64(at & 3)
        old = read_value(words, row, bucket, slot)
        if old & mask == old:
            continue
        changed += 1
        put_value(words, row, bucket, slot, old & mask)
        if old & mask == _0:
            release(table, scratch, at)
    return changed
