"""Building a table from all its keys at once, several times faster than inserting them one by one.

Three passes, each of which may be made in parts. (1) `place_keys` gives every key a bucket: the emptier of
its two, else a random walk of evictions; nothing of the image is written. (2) `settle_buckets` goes through
the buckets in order: it finds each a seed, writes it, and joins each key's two nodes. (3) `settle_bits` gives
each node its bit.

The second pass keeps the trees of the Othello forest as a union-find whose links carry the xor of the bits at
their ends: links[n] is the parent + 1 (0: n is a root) with that xor in the top bit. A root's bit is 0; any
other node's bit is the xor up to its root. A key whose nodes are in one tree already is pinned if the tree
gives it the bit it needs. If not, or if the walk found it no bucket, it is *left over*, for `insert`. A key
that is given twice, whatever its values, counts once.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I64, U32, U64, Int, Words
from kvcompass.kernels.buckets import fingerprint
from kvcompass.kernels.forest import link_edge, pin_edge
from kvcompass.kernels.hashing import (
    first_bucket,
    first_node,
    mix_bucket,
    mix_node,
    second_bucket,
    second_node,
)
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, SALT, SLOTS, node_shift, put_word
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.seating import seat_keys
from kvcompass.kernels.state import ENTRIES, NEXT, PIN_LIMIT, PINNED, Scratch, Table

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_TOP: Final = np.uint32(1 << 31)
_REST: Final = np.uint32((1 << 31) - 1)
_EVICTIONS: Final = 200
"""Evictions after which a key is left over."""


@kernel
def place_keys(table: Table, keys: U64, left: I64, first: Int, end: Int) -> None:
    """Give keys[first:end] a slot each; slot_entry then holds a key's number + 1, of all of `keys`.

    `left` is int64[n + 1]: left[0] numbers are left over, in left[1:].
    """
    row, slot_key, slot_entry = table.row, table.slot_key, table.slot_entry
    for i in range(first, end):
        number = np.uint32(i + 1)
        key: np.uint64 = keys[i]
        mix = mix_bucket(key) * row[SALT]
        bucket = np.int64(first_bucket(mix, row[BUCKETS]))
        other = np.int64(second_bucket(mix, row[BUCKETS]))
        if _free(slot_entry, other) > _free(slot_entry, bucket):
            bucket = other
        placed = False
        for turn in range(_EVICTIONS):
            for j in range(SLOTS):
                if slot_entry[SLOTS * bucket + j] == 0:
                    slot_key[SLOTS * bucket + j] = key
                    slot_entry[SLOTS * bucket + j] = number
                    placed = True
                    break
            if placed:
                break
            at = SLOTS * bucket + np.int64((mix >> np.uint64(turn & 31)) & np.uint64(3))
            key, slot_key[at] = slot_key[at], key
            number, slot_entry[at] = slot_entry[at], number
            mix = mix_bucket(key) * row[SALT]
            other = np.int64(first_bucket(mix, row[BUCKETS]))
            bucket = np.int64(second_bucket(mix, row[BUCKETS])) if other == bucket else other
        if not placed:
            left[0] += 1
            left[left[0]] = np.int64(number) - 1


@kernel
def _free(slot_entry: U32, bucket: Int) -> Int:
    free = 0
    for j in range(SLOTS):
        if slot_entry[SLOTS * bucket + j] == 0:
            free += 1
    return free


@kernel
def settle_buckets(
    table: Table,
    scratch: Scratch,
    links: U32,
    values: U64,
    left: I64,
    first: Int,
    end: Int,
) -> bool:
    """Write buckets first..end-1, number their entries and join the nodes of their keys.

    `links` (uint32[nodes]) is zero before the first call; `values` has one for each key; keys that do not fit
    are added to `left`. False if a bucket has no seed (1 in 1e11).
    """
    words, row, slot_entry, group = table.words, table.row, table.slot_entry, scratch.keys
    for bucket in range(first, end):
        held = 0
        for j in range(SLOTS):
            at = SLOTS * bucket + j
            number = np.int64(slot_entry[at]) - 1
            if number < 0:
                continue
            key: np.uint64 = table.slot_key[at]
            node_mix = mix_node(key) * row[SALT]
            bucket_mix = mix_bucket(key) * row[SALT]
            slot_entry[at] = 0
            twice = False
            for i in range(held):
                twice = twice or group[i, 0] == key
            if twice:
                continue
            if not _join(table, links, bucket, bucket_mix, node_mix):
                left[0] += 1
                left[left[0]] = number
                continue
            group[held, 0] = key
            group[held, 1] = node_mix
            group[held, 2] = fingerprint(words, bucket_mix, node_mix)
            group[held, 3] = values[number]
            scratch.entries[held] = table.counts[NEXT]
            held += 1
        if held > 0 and not seat_keys(table, scratch, bucket, held):
            return False
    return True


@kernel
def _join(table: Table, links: U32, bucket: Int, bucket_mix: np.uint64, node_mix: np.uint64) -> bool:
    """Take the next entry for a key in a bucket and link or pin it; False if its bit cannot be had."""
    row, counts = table.row, table.counts
    a = np.int64(first_node(node_mix, row[NODES_A]))
    b = np.int64(second_node(node_mix, row[NODES_A], row[NODES_B]))
    root_a, up_a = _root(links, a)
    root_b, up_b = _root(links, b)
    named_first = np.int64(first_bucket(bucket_mix, row[BUCKETS])) == bucket
    named_second = np.int64(second_bucket(bucket_mix, row[BUCKETS])) == bucket
    bit = up_a ^ up_b
    joined = root_a == root_b
    if joined:
        if counts[PINNED] == PIN_LIMIT or not (named_second if bit != 0 else named_first):
            return False
    else:
        wanted = np.uint32(0) if named_first else _TOP
        if root_a < root_b:
            links[root_b] = np.uint32(root_a + 1) | (bit ^ wanted)
        else:
            links[root_a] = np.uint32(root_b + 1) | (bit ^ wanted)
    entry: Int = counts[NEXT]
    counts[NEXT] += 1
    counts[ENTRIES] += 1
    table.edges[entry, 0] = np.uint32(a)
    table.edges[entry, 1] = np.uint32(b)
    if joined:
        pin_edge(table, entry)
    else:
        link_edge(table, entry)
    return True


@kernel
def _root(links: U32, node: Int) -> tuple[Int, np.uint32]:
    """Root of a node's tree and the xor of bits on the way (in the top bit); halves the way for the next."""
    up = np.uint32(0)
    while links[node] != 0:
        link: np.uint32 = links[node]
        parent = np.int64(link & _REST) - 1
        above: np.uint32 = links[parent]
        if above != 0:
            links[node] = (above & _REST) | ((link ^ above) & _TOP)
        up ^= link & _TOP
        node = parent
    return node, up


@kernel
def settle_bits(words: Words, row: U64, links: U32, first: Int, end: Int) -> None:
    """Write words first..end-1 of the Othello bits."""
    shift = np.int64(node_shift(words))
    for i in range(first, end):
        word = _0
        begin = np.int64(i) << shift
        for bit in range(1 << shift):
            node = begin + bit
            if node < links.size and links[node] != 0:
                _, up = _root(links, node)
                if up != 0:
                    word |= _1 << np.uint64(bit)
        put_word(words, row, np.uint64(i), word)
