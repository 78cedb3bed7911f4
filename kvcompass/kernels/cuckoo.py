"""Buckets of the writer: placing a key under a seed, and the cuckoo path that makes room for it."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import Int
from kvcompass.kernels.buckets import (
    fingerprint,
    print_shift,
    put_seed_and_prints,
    put_value,
    read_seed,
    read_value,
)
from kvcompass.kernels.forest import (
    RIGHT,
    flip_is_legal,
    flip_side,
    walk_sides,
)
from kvcompass.kernels.hashing import (
    SEEDS,
    first_bucket,
    mix_bucket,
    mix_node,
    second_bucket,
    slot_of,
)
from kvcompass.kernels.image import BUCKETS, SALT, SLOTS
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.state import (
    MOVES,
    PATH_LIMIT,
    PINNED,
    SEARCH_LIMIT,
    TOUCHED_LIMIT,
    Scratch,
    Table,
)

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_BYTE: Final = np.uint64(255)


@kernel
def free_slot(table: Table, bucket: Int) -> Int:
    """A free slot of a bucket, or -1."""
    for j in range(SLOTS):
        if table.slot_entry[4 * bucket + j] == 0:
            return j
    return -1


@kernel
def place(table: Table, scratch: Scratch, bucket: Int, key: np.uint64, value: np.uint64, entry: Int) -> bool:
    """Put a key into a bucket with a free slot, under a seed that keeps its keys apart.

    False, with nothing changed, when no seed does (one full bucket in 1e11) or too many buckets were touched.
    """
    row = table.row
    group = scratch.keys
    entries = scratch.entries
    if scratch.fill[1] >= TOUCHED_LIMIT:
        return False
    held = 0
    for j in range(SLOTS):
        at = 4 * bucket + j
        if table.slot_entry[at] != 0:
            group[held, 0] = table.slot_key[at]
            group[held, 3] = read_value(table.words, row, np.uint64(bucket), np.uint64(j))
            entries[held] = np.int64(table.slot_entry[at]) - 1
            held += 1
    group[held, 0] = key
    group[held, 3] = value
    entries[held] = entry
    held += 1
    for j in range(held):
        group[j, 1] = mix_node(group[j, 0]) * row[SALT]
        group[j, 2] = mix_bucket(group[j, 0]) * row[SALT]

    seed = read_seed(table.words, row, np.uint64(bucket))
    tried = 0
    while True:
        taken = _0
        for j in range(held):
            bit = _1 << slot_of(group[j, 1], seed)
            if taken & bit != _0:
                taken = _0
                break
            taken |= bit
        if taken != _0:
            break
        tried += 1
        if tried == SEEDS:
            return False
        seed = (seed + _1) & _BYTE

    prints = _0
    for j in range(SLOTS):
        table.slot_entry[4 * bucket + j] = 0
    for j in range(held):
        slot = slot_of(group[j, 1], seed)
        at = 4 * bucket + np.int64(slot)
        table.slot_key[at] = group[j, 0]
        table.slot_entry[at] = np.uint32(entries[j] + 1)
        prints |= fingerprint(table.words, group[j, 2], group[j, 1]) << print_shift(table.words, slot)
    for s in range(SLOTS):
        word = _0
        for j in range(held):
            if np.int64(slot_of(group[j, 1], seed)) == s:
                word = group[j, 3]
        put_value(table.words, row, np.uint64(bucket), np.uint64(s), word)
    put_seed_and_prints(table.words, row, np.uint64(bucket), seed, prints)
    scratch.touched[scratch.fill[1]] = bucket
    scratch.fill[1] += 1
    return True


@kernel
def find_path(table: Table, scratch: Scratch, named: Int, other: Int) -> Int:
    """Breadth-first search for a bucket with a free slot; its index in `scratch.search`, or -1.

    Starts at `named` and, unless -1, at `other`. No bucket occurs twice on a path, so that the slot numbers
    noted stay true while the path's moves are made from its far end.
    """
    search = scratch.search
    buckets = table.row[BUCKETS]
    queued = 0
    for root in (named, other):
        if root >= 0:
            search[queued, 0] = root
            search[queued, 1] = -1
            search[queued, 2] = -1
            search[queued, 3] = 0
            if free_slot(table, root) >= 0:
                return queued
            queued += 1
    at = 0
    while at < queued:
        bucket = search[at, 0]
        depth = search[at, 3]
        if depth < PATH_LIMIT:
            for turn in range(SLOTS):
                slot = (turn + bucket + depth) & 3
                bucket_mix = mix_bucket(table.slot_key[4 * bucket + slot]) * table.row[SALT]
                first = np.int64(first_bucket(bucket_mix, buckets))
                second = np.int64(second_bucket(bucket_mix, buckets))
                target = second if first == bucket else first
                if queued == SEARCH_LIMIT or _on_path(scratch, at, target):
                    continue
                search[queued, 0] = target
                search[queued, 1] = at
                search[queued, 2] = slot
                search[queued, 3] = depth + 1
                if free_slot(table, target) < 0:
                    queued += 1
                elif _moves_are_legal(table, scratch, queued):
                    return queued
        at += 1
    return -1


@kernel
def _on_path(scratch: Scratch, at: Int, bucket: Int) -> bool:
    while at >= 0:
        if scratch.search[at, 0] == bucket:
            return True
        at = scratch.search[at, 1]
    return False


@kernel
def _moves_are_legal(table: Table, scratch: Scratch, at: Int) -> bool:
    """Whether no key on the path is pinned (its ends are joined) and every flip keeps the pins."""
    if table.counts[PINNED] == 0:
        return True
    while scratch.search[at, 1] >= 0:
        source = scratch.search[scratch.search[at, 1], 0]
        edge = np.int64(table.slot_entry[4 * source + scratch.search[at, 2]]) - 1
        side, count = _walk_edge(table, scratch, edge)
        if side > RIGHT or not flip_is_legal(table, scratch, side, count):
            return False
        at = scratch.search[at, 1]
    return True


@kernel
def _walk_edge(table: Table, scratch: Scratch, edge: Int) -> tuple[Int, Int]:
    return walk_sides(table, scratch, np.int64(table.edges[edge, 0]), np.int64(table.edges[edge, 1]), edge)


@kernel
def make_room(table: Table, scratch: Scratch, at: Int) -> Int:
    """Make the moves of a found path, far end first; the root bucket, which then has a free slot, or -1.

    After -1 the moves made so far stand: every key present still answers exactly.
    """
    search = scratch.search
    while search[at, 1] >= 0:
        parent = search[at, 1]
        if not _move(table, scratch, search[parent, 0], search[at, 2], search[at, 0]):
            return -1
        at = parent
    return np.int64(search[at, 0])


@kernel
def _move(table: Table, scratch: Scratch, source: Int, slot: Int, target: Int) -> bool:
    """Move a key to its other bucket: flip its Othello bit, place it there, free its slot here."""
    at = 4 * source + slot
    key = table.slot_key[at]
    entry = np.int64(table.slot_entry[at]) - 1
    value = read_value(table.words, table.row, np.uint64(source), np.uint64(slot))
    side, count = _walk_edge(table, scratch, entry)
    if side > RIGHT or scratch.fill[1] + 2 > TOUCHED_LIMIT:
        return False
    if not flip_side(table, scratch, side, count):
        return False
    if not place(table, scratch, target, key, value, entry):
        scratch.fill[0] -= count
        flip_side(table, scratch, side, count)
        return False
    table.slot_entry[at] = 0
    put_value(table.words, table.row, np.uint64(source), np.uint64(slot), _0)
    scratch.touched[scratch.fill[1]] = source
    scratch.fill[1] += 1
    table.counts[MOVES] += 1
    return True
