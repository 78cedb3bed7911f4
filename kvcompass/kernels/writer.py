"""The writer's entry points: batches of edits to one table, and the clearing of a worker."""

from typing import Final

import numpy as np

from kvcompass.kernels.ahead import LEAD, look_ahead, mixes_of
from kvcompass.kernels.arrays import I64, U8, U32, U64, Int, Words
from kvcompass.kernels.buckets import put_value, read_value
from kvcompass.kernels.growth import forget_entry, is_growing, split_entries
from kvcompass.kernels.hashing import GOLDEN, mix_node
from kvcompass.kernels.image import read_bit
from kvcompass.kernels.insertion import find_mixed, insert, remove_entry
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.patch_records import (
    BUCKET_WORDS_MOST,
    GROUP_HEADER,
    NODES,
    SPLIT_ONE_WORDS,
    begin_split,
    put_split,
    write_bucket,
    write_clear,
    write_value,
)
from kvcompass.kernels.split import put_children
from kvcompass.kernels.state import FLIPPED_LIMIT, HELD, HOLDINGS_DIGEST, SPLIT, TOUCHED_LIMIT, Scratch, Table

DONE: Final = 0
"""All edits are made."""
DRAIN: Final = 1
"""`out` is nearly full: take it and go on with the rest."""
FULL: Final = 2
"""The next key finds no place: the table must grow first."""

LONGEST_GROUP: Final = (
    GROUP_HEADER + 2 + FLIPPED_LIMIT + (BUCKET_WORDS_MOST + SPLIT_ONE_WORDS) * TOUCHED_LIMIT
)
"""Words of the longest group an edit can yield."""

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_3: Final = np.uint64(3)


@kernel
def note_holding(table: Table, worker_slot: Int, key: np.uint64, before: np.uint64, after: np.uint64) -> None:
    """Keep a worker's count and digest of holdings true when its tier of a key changes."""
    if before != _0:
        table.workers[worker_slot, HELD] -= _1
        table.workers[worker_slot, HOLDINGS_DIGEST] ^= mix_node(key * _3 + before + GOLDEN)
    if after != _0:
        table.workers[worker_slot, HELD] += _1
        table.workers[worker_slot, HOLDINGS_DIGEST] ^= mix_node(key * _3 + after + GOLDEN)


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
    workers: U64,
    wide_words: Words,
    wide_row: U64,
    wide_slot_key: U64,
    wide_slot_entry: U32,
    wide_edges: U32,
    wide_heads: U32,
    wide_free: U32,
    wide_pins: U32,
    wide_counts: I64,
    wide_workers: U64,
    walk: I64,
    search: I64,
    flipped: I64,
    touched: I64,
    fill: I64,
    group: U64,
    entries: I64,
    ahead: U64,
    keys: U64,
    tiers: U8,
    start: Int,
    table_id: Int,
    worker_slot: Int,
    out: U32,
    at: Int,
) -> tuple[Int, Int, Int, Int]:
    """Set one worker's field of keys[start:]; one patch group for each edit that changes something.

    `wide` is the table that doubles this one, blank when none does: it is kept up to date.
    Returns (edits made, end of `out`, groups written, DONE | DRAIN | FULL).

    A unit calls this more often than all else, so it takes one array after the other: to unpack tuples of
    them costs 4 us a call.
    """
    return _edit_keys(
        Table(words, row, slot_key, slot_entry, edges, heads, free, pins, counts, workers),
        Table(
            wide_words,
            wide_row,
            wide_slot_key,
            wide_slot_entry,
            wide_edges,
            wide_heads,
            wide_free,
            wide_pins,
            wide_counts,
            wide_workers,
        ),
        Scratch(walk, search, flipped, touched, fill, group, entries, ahead),
        keys,
        tiers,
        start,
        table_id,
        worker_slot,
        out,
        at,
    )


@kernel
def _edit_keys(
    table: Table,
    wide: Table,
    scratch: Scratch,
    keys: U64,
    tiers: U8,
    start: Int,
    table_id: Int,
    worker_slot: Int,
    out: U32,
    at: Int,
) -> tuple[Int, Int, Int, Int]:
    words, row, fill = table.words, table.row, scratch.fill
    shift = np.uint64(2 * worker_slot)
    groups = 0
    for i in range(start - LEAD, keys.size):
        look_ahead(table, scratch, keys, tiers, start, i)
        if i < start:
            continue
        if out.size - at < LONGEST_GROUP:
            return i, at, groups, DRAIN
        key, tier = keys[i], np.uint64(tiers[i])
        bucket_mix, node_mix = mixes_of(scratch, i)
        place_of_key = find_mixed(table, key, bucket_mix, node_mix)
        if place_of_key < 0:
            if tier == _0:
                continue
            found = insert(table, scratch, key, bucket_mix, node_mix, tier << shift)
            if fill[0] + fill[1] > 0:
                at = _write_changes(table, wide, scratch, table_id, out, at)
                groups += 1
            if not found:
                return i, at, groups, FULL
            note_holding(table, worker_slot, key, _0, tier)
            continue
        bucket = np.uint64(place_of_key >> 2)
        slot = np.uint64(place_of_key & 3)
        old = read_value(words, row, bucket, slot)
        new = (old & ~(_3 << shift)) | (tier << shift)
        if new == old:
            continue
        note_holding(table, worker_slot, key, (old >> shift) & _3, tier)
        put_value(words, row, bucket, slot, new)
        if new == _0:
            forget_entry(wide, remove_entry(table, scratch, place_of_key))
        end = write_value(out, at + GROUP_HEADER, words, table_id, bucket, slot, new)
        end, more = _follow(table, wide, np.int64(bucket), table_id, out, end)
        out[at] = np.uint32(end - at)
        out[at + 1] = np.uint32(1 + more)
        at = end
        groups += 1
    return keys.size, at, groups, DONE


@kernel
def _write_changes(table: Table, wide: Table, scratch: Scratch, table_id: Int, out: U32, at: Int) -> Int:
    """Append the group of what an insertion changed, found it a place or not; returns the new end."""
    words, row, fill = table.words, table.row, scratch.fill
    end: Int = at + GROUP_HEADER
    records: Int = 0
    if fill[0] > 0:
        out[end] = np.uint32(NODES | (table_id << 8))
        out[end + 1] = np.uint32(fill[0])
        for j in range(fill[0]):
            node = np.uint64(scratch.flipped[j])
            bit = read_bit(words, row, node)
            out[end + 2 + j] = np.uint32((node << _1) | bit)
            if is_growing(wide):
                put_children(wide.words, wide.row, node, bit)
        end += 2 + fill[0]
        records = 1
    for j in range(fill[1]):
        if not _seen_before(scratch.touched, j):
            end = write_bucket(out, end, words, row, table_id, np.uint64(scratch.touched[j]))
            end, more = _follow(table, wide, scratch.touched[j], table_id, out, end)
            records += 1 + more
    out[at] = np.uint32(end - at)
    out[at + 1] = np.uint32(records)
    return end


@kernel
def _follow(table: Table, wide: Table, bucket: Int, table_id: Int, out: U32, at: Int) -> tuple[Int, Int]:
    """Split a changed bucket again if it is split, and append the record; (new end, records written)."""
    if bucket >= wide.counts[SPLIT]:
        return at, 0
    end = begin_split(out, at, table_id, bucket, 1)
    put_split(out, end - 1, 0, split_entries(table, wide, bucket))
    return end, 1


@kernel
def clear_slice(
    table: Table,
    wide: Table,
    scratch: Scratch,
    worker_slots: I64,
    first: Int,
    count: Int,
    table_id: Int,
    out: U32,
) -> Int:
    """Zero some workers' fields in buckets first..first+count-1 and forget keys whose value becomes zero.

    One group; returns the words written to `out`, which must have room for count/8 + 4 a worker + 16.
    """
    words, row = table.words, table.row
    mask = _0
    for i in range(worker_slots.size):
        mask |= _3 << np.uint64(2 * worker_slots[i])
    for at in range(4 * first, 4 * (first + count)):
        if table.slot_entry[at] == 0:
            continue
        bucket = np.uint64(at >> 2)
        slot = np.uint64(at & 3)
        old = read_value(words, row, bucket, slot)
        if old & mask == _0:
            continue
        for i in range(worker_slots.size):
            tier = (old >> np.uint64(2 * worker_slots[i])) & _3
            note_holding(table, worker_slots[i], table.slot_key[at], tier, _0)
        put_value(words, row, bucket, slot, old & ~mask)
        if old & ~mask == _0:
            forget_entry(wide, remove_entry(table, scratch, at))
    end: Int = GROUP_HEADER
    for i in range(worker_slots.size):
        end = write_clear(out, end, table_id, worker_slots[i], first, count)
    records = worker_slots.size
    split = min(count, wide.counts[SPLIT] - first)
    if split > 0:
        end = begin_split(out, end, table_id, first, split)
        begin = end - (split + 7) // 8
        for i in range(split):
            put_split(out, begin, i, split_entries(table, wide, first + i))
        records += 1
    out[0] = np.uint32(end)
    out[1] = np.uint32(records)
    return end
