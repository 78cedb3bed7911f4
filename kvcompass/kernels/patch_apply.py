"""Applying a checked payload of patch groups to the images of a shard's tables."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I64, U32, U64, Int, Words
from kvcompass.kernels.buckets import put_seed_and_prints, put_value, read_value, value_index
from kvcompass.kernels.image import BASE, BUCKETS, LINES, SLOTS, WIDE, put_bit
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.patch_records import (
    BUCKET,
    CLEAR_WORDS,
    GROUP_HEADER,
    GROW,
    NODES,
    SPLIT,
    SPREAD,
    SPREAD_WORDS,
    VALUE,
    bucket_words,
    read_long,
    value_words,
)
from kvcompass.kernels.prefetch import prefetch
from kvcompass.kernels.split import (
    BUCKETS_SPLIT,
    WORDS_SPREAD,
    put_children,
    split_bucket,
    spread_words,
)

_AHEAD: Final = 12
"""Groups between the one being applied and the one whose memory is asked for."""

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_3: Final = np.uint64(3)


@kernel
def apply_groups(
    payload: U32,
    at: Int,
    skip: Int,
    words: Words,
    directory: U64,
    first_row: Int,
    wide: U64,
    growth: I64,
) -> Int:
    """Apply the groups of a checked payload from `at` on, but the first `skip`. Mutates all that it is given.

    Stops before a GROW group, which is not its to apply. Returns where it stopped.
    """
    for _ in range(skip):
        at += np.int64(payload[at])
    ahead = at
    for _ in range(_AHEAD):
        ahead = _ask_for_group(payload, ahead, words, directory, first_row)
    while at < payload.size:
        ahead = _ask_for_group(payload, ahead, words, directory, first_row)
        end = at + np.int64(payload[at])
        if end - at > GROUP_HEADER and np.int64(payload[at + GROUP_HEADER]) & 255 == GROW:
            return at
        at += GROUP_HEADER
        while at < end:
            index = first_row + (np.int64(payload[at]) >> 8)
            at = _apply_record(payload, at, words, directory[index], wide[index], growth[index])
    return at


@kernel
def _ask_for_group(payload: U32, at: Int, words: Words, directory: U64, first_row: Int) -> Int:
    """Ask for the memory that a group's first record writes to, if it is a value or a bucket; its end."""
    if at == payload.size:
        return at
    if np.int64(payload[at]) > GROUP_HEADER:
        kind = np.int64(payload[at + GROUP_HEADER]) & 255
        row = directory[first_row + (np.int64(payload[at + GROUP_HEADER]) >> 8)]
        subject = np.uint64(payload[at + GROUP_HEADER + 1])
        if kind == VALUE:
            prefetch(words, row[BASE] + value_index(words, row, subject >> _2, subject & _3))
        elif kind == BUCKET:
            prefetch(words, row[BASE] + value_index(words, row, subject, _0))
    return at + np.int64(payload[at])


@kernel
def _apply_record(payload: U32, at: Int, words: Words, row: U64, wide: U64, growth: I64) -> Int:
    kind = np.int64(payload[at]) & 255
    subject = np.uint64(payload[at + 1])
    if kind == VALUE:
        put_value(words, row, subject >> _2, subject & _3, read_long(payload, at + 2, words))
        return at + value_words(words)
    if kind == BUCKET:
        _apply_bucket(payload, at, words, row, subject)
        return at + bucket_words(words)
    if kind == NODES:
        nodes = np.int64(subject)
        for i in range(nodes):
            node = np.uint64(payload[at + 2 + i])
            put_bit(words, row, node >> _1, node & _1)
            if wide[BUCKETS] != _0:
                put_children(words, wide, node >> _1, node & _1)
        return at + 2 + nodes
    first = np.int64(subject)
    count = np.int64(payload[at + 2])
    if kind == SPREAD:
        spread_words(words, row, words, wide, first, first + count)
        growth[WORDS_SPREAD] = max(growth[WORDS_SPREAD], first + count)
        return at + SPREAD_WORDS
    if kind == SPLIT:
        for i in range(count):
            split = np.uint64(payload[at + 3 + i // 8]) >> np.uint64(4 * (i & 7))
            split_bucket(words, row, words, wide, np.uint64(first + i), split)
        growth[BUCKETS_SPLIT] = max(growth[BUCKETS_SPLIT], first + count)
        return at + 3 + (count + 7) // 8
    clear_field(words, row, subject, count, count + np.int64(payload[at + 3]))
    return at + CLEAR_WORDS


@kernel
def _apply_bucket(payload: U32, at: Int, words: Words, row: U64, bucket: np.uint64) -> None:
    width = 2 if words.dtype == WIDE else 1
    for slot in range(SLOTS):
        value = read_long(payload, at + 2 + width * slot, words)
        put_value(words, row, bucket, np.uint64(slot), value)
    tail = at + 2 + width * SLOTS
    prints = _0
    if words.dtype == LINES or words.dtype == WIDE:
        prints = read_long(payload, tail + 1, words)
    put_seed_and_prints(words, row, bucket, np.uint64(payload[tail]), prints)


@kernel
def clear_field(words: Words, row: U64, slot: np.uint64, first: Int, end: Int) -> None:
    """Zero one worker's 2-bit field in every value of buckets first..end-1."""
    mask = ~(_3 << (slot << _1))
    for b in range(first, end):
        for j in range(SLOTS):
            value = read_value(words, row, np.uint64(b), np.uint64(j))
            if value & mask != value:
                put_value(words, row, np.uint64(b), np.uint64(j), value & mask)
