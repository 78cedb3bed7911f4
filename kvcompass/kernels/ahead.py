"""Asking ahead for the memory of edits: what one would wait for is on its way while others are made.

An edit of a large table waits for some ten cache misses, one after the other, for each says where the next
is. So each key of a batch is looked at in six steps before it is edited, STEP keys apart:

    aim      its hashes are known: ask for its two Othello words
    name     they name a bucket: ask for that, its keys and its entries
    look     it is there or not. To be removed: ask for its edge; to be inserted: for its nodes and buckets
    reach    ask for the nodes of that edge, or the edges at those nodes; when both buckets are full, for
             what is free where their keys may move to
    guess    which of them will move, and where to: ask for that bucket and the key's edge
    follow   ask for the nodes of that edge

The edit itself reads all of it anew: what was seen ahead may have changed since, and then only costs time.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U8, U64, Int
from kvcompass.kernels.buckets import named_bucket, seed_index, value_index
from kvcompass.kernels.cuckoo import free_slot, other_bucket, slot_in_turn
from kvcompass.kernels.hashing import (
    first_bucket,
    first_node,
    mix_bucket,
    mix_node,
    second_bucket,
    second_node,
)
from kvcompass.kernels.image import BASE, BUCKETS, NODES_A, NODES_B, SALT, SLOTS, node_word
from kvcompass.kernels.insertion import find_mixed
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.prefetch import prefetch
from kvcompass.kernels.state import AHEAD, FREE, Scratch, Table

STEP: Final = 6
"""Keys between two steps."""
LEAD: Final = 6 * STEP
"""Keys between the first step and the edit; less than AHEAD."""
_BUCKET_MIX: Final = 0
_NODE_MIX: Final = 1
_PLACE: Final = 2
"""Columns of `Scratch.ahead`. PLACE is the position + 1 that later steps go on from: that of the key, then
that of the one to be moved for it; 0 for none, _FULL while it is to be guessed."""

_FULL: Final = np.uint64(2**64 - 1)
_0: Final = np.uint64(0)
_3: Final = np.uint64(3)
_4: Final = np.uint64(4)


@kernel
def look_ahead(table: Table, scratch: Scratch, keys: U64, tiers: U8, start: Int, at: Int) -> None:
    """Take the steps that are due LEAD keys before the edit of keys[at]. The batch begins at `start`."""
    size = keys.size
    if at + LEAD < size:
        _aim(table, scratch, keys[at + LEAD], at + LEAD)
    if start <= at + 5 * STEP < size:
        _name(table, scratch, at + 5 * STEP)
    if start <= at + 4 * STEP < size:
        _look(table, scratch, keys[at + 4 * STEP], tiers[at + 4 * STEP], at + 4 * STEP)
    if start <= at + 3 * STEP < size:
        _reach(table, scratch, tiers[at + 3 * STEP], at + 3 * STEP)
    if start <= at + 2 * STEP < size:
        _guess(table, scratch, at + 2 * STEP)
    if start <= at + STEP < size:
        _follow(table, scratch, at + STEP)


@kernel
def mixes_of(scratch: Scratch, at: Int) -> tuple[np.uint64, np.uint64]:
    """Bucket mix and node mix of a key that has been looked at, times the table's salt."""
    note = scratch.ahead[at & (AHEAD - 1)]
    return note[_BUCKET_MIX], note[_NODE_MIX]


@kernel
def _aim(table: Table, scratch: Scratch, key: np.uint64, at: Int) -> None:
    words, row = table.words, table.row
    node_mix = mix_node(key) * row[SALT]
    note = scratch.ahead[at & (AHEAD - 1)]
    note[_BUCKET_MIX] = mix_bucket(key) * row[SALT]
    note[_NODE_MIX] = node_mix
    prefetch(words, node_word(words, row, first_node(node_mix, row[NODES_A])))
    prefetch(words, node_word(words, row, second_node(node_mix, row[NODES_A], row[NODES_B])))


@kernel
def _name(table: Table, scratch: Scratch, at: Int) -> None:
    bucket_mix, node_mix = mixes_of(scratch, at)
    _ask_for_bucket(table, named_bucket(table.words, table.row, bucket_mix, node_mix))


@kernel
def _look(table: Table, scratch: Scratch, key: np.uint64, tier: Int, at: Int) -> None:
    row = table.row
    bucket_mix, node_mix = mixes_of(scratch, at)
    found = find_mixed(table, key, bucket_mix, node_mix)
    scratch.ahead[at & (AHEAD - 1), _PLACE] = np.uint64(found + 1)
    if found >= 0 and tier == 0:
        prefetch(table.edges, _edge_of(table, found))
    elif found < 0 and tier != 0:
        prefetch(table.heads, first_node(node_mix, row[NODES_A]))
        prefetch(table.heads, second_node(node_mix, row[NODES_A], row[NODES_B]))
        _ask_for_bucket(table, first_bucket(bucket_mix, row[BUCKETS]))
        _ask_for_bucket(table, second_bucket(bucket_mix, row[BUCKETS]))
        if table.counts[FREE] > STEP:
            prefetch(table.edges, _4 * np.uint64(table.free[table.counts[FREE] - STEP]))


@kernel
def _reach(table: Table, scratch: Scratch, tier: Int, at: Int) -> None:
    row = table.row
    note = scratch.ahead[at & (AHEAD - 1)]
    place = note[_PLACE]
    note[_PLACE] = _0
    if place != _0:
        if tier == 0:
            _ask_for_nodes(table, np.int64(place) - 1)
        return
    if tier == 0:
        return
    bucket_mix, node_mix = mixes_of(scratch, at)
    a = np.int64(first_node(node_mix, row[NODES_A]))
    b = np.int64(second_node(node_mix, row[NODES_A], row[NODES_B]))
    prefetch(table.edges, _4 * np.uint64(table.heads[a]) - _4)
    prefetch(table.edges, _4 * np.uint64(table.heads[b]) - _4)
    first = np.int64(first_bucket(bucket_mix, row[BUCKETS]))
    second = np.int64(second_bucket(bucket_mix, row[BUCKETS]))
    if free_slot(table, first) < 0 and free_slot(table, second) < 0:
        note[_PLACE] = _FULL
        for slot in range(SLOTS):
            prefetch(table.slot_entry, _4 * np.uint64(other_bucket(table, first, slot)))
            prefetch(table.slot_entry, _4 * np.uint64(other_bucket(table, second, slot)))


@kernel
def _guess(table: Table, scratch: Scratch, at: Int) -> None:
    row = table.row
    note = scratch.ahead[at & (AHEAD - 1)]
    if note[_PLACE] != _FULL:
        return
    note[_PLACE] = _0
    bucket_mix, node_mix = mixes_of(scratch, at)
    first = np.int64(first_bucket(bucket_mix, row[BUCKETS]))
    second = np.int64(second_bucket(bucket_mix, row[BUCKETS]))
    bucket = np.int64(named_bucket(table.words, row, bucket_mix, node_mix))
    for _ in range(2):
        for turn in range(SLOTS):
            slot = slot_in_turn(turn, bucket, 0)
            target = other_bucket(table, bucket, slot)
            if free_slot(table, target) >= 0:
                _ask_for_bucket(table, np.uint64(target))
                prefetch(table.edges, _edge_of(table, SLOTS * bucket + slot))
                note[_PLACE] = np.uint64(SLOTS * bucket + slot + 1)
                return
        bucket = second if bucket == first else first


@kernel
def _follow(table: Table, scratch: Scratch, at: Int) -> None:
    place = scratch.ahead[at & (AHEAD - 1), _PLACE]
    if place != _0:
        _ask_for_nodes(table, np.int64(place) - 1)


@kernel
def _ask_for_bucket(table: Table, bucket: np.uint64) -> None:
    words, row = table.words, table.row
    prefetch(words, row[BASE] + value_index(words, row, bucket, _0))
    prefetch(words, row[BASE] + seed_index(words, row, bucket))
    prefetch(table.slot_entry, bucket * _4)
    prefetch(table.slot_key, bucket * _4)
    prefetch(table.slot_key, bucket * _4 + _3)  # an array need not start with a cache line


@kernel
def _edge_of(table: Table, place: Int) -> np.uint64:
    """Where the edge of the key at a position begins in `edges`, counted flat."""
    return _4 * np.uint64(table.slot_entry[place]) - _4


@kernel
def _ask_for_nodes(table: Table, place: Int) -> None:
    """Ask for the nodes of the key at a position, if it is still there."""
    entry = np.int64(table.slot_entry[place]) - 1
    if entry >= 0:
        prefetch(table.heads, np.uint64(table.edges[entry, 0]))
        prefetch(table.heads, np.uint64(table.edges[entry, 1]))
