"""Buckets of the writer: placing a key under a seed, and the cuckoo path that makes room for it."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import Int
from kvcompass.kernels.buckets import (
    put_seed_and_prints,
    put_value,
    read_print,
    read_prints,
    read_seed,
    read_value,
    with_print,
)
from kvcompass.kernels.forest import (
    RIGHT,
    flip_is_legal,
    flip_side,
    walk_sides,
)
from kvcompass.kernels.hashing import (
    first_bucket,
    mix_bucket,
    mix_node,
    second_bucket,
    slot_of,
)
from kvcompass.kernels.image import BUCKETS, SALT, SLOTS
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.seating import seat_keys
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


@kernel
def free_slot(table: Table, bucket: Int) -> Int:
    """A free slot of a bucket, or -1."""
    for j in range(SLOTS):
        if table.slot_entry[4 * bucket + j] == 0:
            return j
    return -1


@kernel
def place(
    table: Table,
    scratch: Scratch,
    bucket: Int,
    key: np.uint64,
    node_mix: np.uint64,
    key_print: np.uint64,
    value: np.uint64,
    entry: Int,
) -> bool:
    """Put a key into a bucket with a free slot, under a seed that keeps its keys apart.

    False, with nothing changed, when no seed does (one full bucket in 1e11) or too many buckets were touched.
    """
    if scratch.fill[1] >= TOUCHED_LIMIT:
        return False
    words, row, index = table.words, table.row, np.uint64(bucket)
    seed = read_seed(words, row, index)
    slot = slot_of(node_mix, seed)
    at = 4 * bucket + np.int64(slot)
    if table.slot_entry[at] == 0:
        table.slot_key[at] = key
        table.slot_entry[at] = np.uint32(entry + 1)
        put_value(words, row, index, slot, value)
        prints = with_print(words, read_prints(words, row, index), slot, key_print)
        put_seed_and_prints(words, row, index, seed, prints)
    elif not _reseat(table, scratch, bucket, key, node_mix, key_print, value, entry):
        return False
    scratch.touched[scratch.fill[1]] = bucket
    scratch.fill[1] += 1
    return True


@kernel
def _reseat(
    table: Table,
    scratch: Scratch,
    bucket: Int,
    key: np.uint64,
    node_mix: np.uint64,
    key_print: np.uint64,
    value: np.uint64,
    entry: Int,
) -> bool:
    """Place a key under another seed, which moves the bucket's other keys between its slots."""
    words, row, index = table.words, table.row, np.uint64(bucket)
    held = 0
    for j in range(SLOTS):
        at = 4 * bucket + j
        if table.slot_entry[at] != 0:
            other: np.uint64 = table.slot_key[at]
            scratch.keys[held, 0] = other
            scratch.keys[held, 1] = mix_node(other) * row[SALT]
            scratch.keys[held, 2] = read_print(words, row, index, np.uint64(j))
            scratch.keys[held, 3] = read_value(words, row, index, np.uint64(j))
            scratch.entries[held] = np.int64(table.slot_entry[at])
            held += 1
    scratch.keys[held, 0] = key
    scratch.keys[held, 1] = node_mix
    scratch.keys[held, 2] = key_print
    scratch.keys[held, 3] = value
    scratch.entries[held] = entry + 1
    return seat_keys(table, scratch, bucket, held + 1)


@kernel
def other_bucket(table: Table, bucket: Int, slot: Int) -> Int:
    """The other candidate bucket of the key in a slot."""
    bucket_mix = mix_bucket(table.slot_key[4 * bucket + slot]) * table.row[SALT]
    first = np.int64(first_bucket(bucket_mix, table.row[BUCKETS]))
    second = np.int64(second_bucket(bucket_mix, table.row[BUCKETS]))
    return second if first == bucket else first


@kernel
def slot_in_turn(turn: Int, bucket: Int, depth: Int) -> Int:
    """The slot of a bucket that a search looks at `turn`-th: not always the first one first."""
    return (turn + bucket + depth) & 3


@kernel
def find_path(table: Table, scratch: Scratch, named: Int, other: Int) -> Int:
    """Breadth-first search for a bucket with a free slot; its index in `scratch.search`, or -1.

    Starts at `named` and, unless -1, at `other`. No bucket occurs twice on a path, so that the slot numbers
    noted stay true while the path's moves are made from its far end.
    """
    search = scratch.search
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
                slot = slot_in_turn(turn, bucket, depth)
                target = other_bucket(table, bucket, slot)
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
    key_print = read_print(table.words, table.row, np.uint64(source), np.uint64(slot))
    node_mix = mix_node(key) * table.row[SALT]
    if not place(table, scratch, target, key, node_mix, key_print, value, entry):
        scratch.fill[0] -= count
        flip_side(table, scratch, side, count)
        return False
    table.slot_entry[at] = 0
    put_value(table.words, table.row, np.uint64(source), np.uint64(slot), _0)
    scratch.touched[scratch.fill[1]] = source
    scratch.fill[1] += 1
    table.counts[MOVES] += 1
    return True
