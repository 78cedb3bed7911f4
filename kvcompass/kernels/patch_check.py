"""Checking a payload of patch groups, before any of it is applied, against the tables it is for."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I64, U32, U64, Int, Words
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, NODES_MOST, SLOTS, WIDE, bit_words
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.patch_records import (
    BUCKET,
    CLEAR_WORDS,
    CLEAR_WORKER,
    GROUP_HEADER,
    GROW,
    GROW_BEGIN,
    GROW_SWAP,
    GROW_WORDS,
    NODES,
    SPLIT,
    SPREAD,
    SPREAD_WORDS,
    VALUE,
    bucket_words,
    value_words,
)
from kvcompass.kernels.split import BUCKETS_SPLIT, WORDS_SPREAD

_BUCKETS: Final = 0
_NODES: Final = 1
_GROWS: Final = 2
_SPREAD: Final = 3
_SPLIT: Final = 4
CHECKING: Final = 5
"""Columns of `check_groups`' state."""

SOUND: Final = 0
MALFORMED: Final = 1
TOO_MUCH: Final = 2
"""To apply it would take longer than one call may."""
TOO_LARGE: Final = 3
"""A table would become larger than any that is accepted."""

_NODES_WORK: Final = 8
"""Othello nodes that are set in the time of one record."""
_CLEAR_WORK: Final = 32
"""The same for buckets cleared of a worker."""
_SPREAD_WORK: Final = 4
"""The same for words of Othello bits copied to a doubled table."""
_SPLIT_WORK: Final = 4
"""The same for buckets split."""

_0: Final = np.uint64(0)
_24: Final = np.uint64(24)


@kernel
def check_groups(
    payload: U32,
    count: Int,
    skip: Int,
    words: Words,
    directory: U64,
    first_row: Int,
    tables: Int,
    value_slots: Int,
    wide: U64,
    growth: I64,
    state: I64,
    buckets_most: Int,
    work_most: Int,
) -> Int:
    """SOUND if `payload` is exactly `count` well-formed groups for the tables at first_row of `directory`.

    The first `skip` groups will not be applied: only their lengths are looked at.
    `wide` and `growth` are rows of the tables that double others and how far they are, as `directory`.
    `state` (int64[tables, 5], overwritten) follows what the groups will have changed of all that. No table
    may come to more than `buckets_most` buckets, and all groups together to no more work than that of
    `work_most` records.
    """
    for table in range(tables):
        row = directory[first_row + table]
        state[table, _BUCKETS] = row[BUCKETS]
        state[table, _NODES] = row[NODES_A] + row[NODES_B]
        state[table, _GROWS] = wide[first_row + table, BUCKETS] != _0
        state[table, _SPREAD] = growth[first_row + table, WORDS_SPREAD]
        state[table, _SPLIT] = growth[first_row + table, BUCKETS_SPLIT]
    at: Int = 0
    work: Int = 0
    size = payload.size
    for group in range(count):
        if size - at < GROUP_HEADER:
            return MALFORMED
        length = np.int64(payload[at])
        records = np.int64(payload[at + 1])
        if length < GROUP_HEADER or length > size - at:
            return MALFORMED
        if group < skip:
            at += length
            continue
        end = at + length
        at += GROUP_HEADER
        for _ in range(records):
            if end - at < 2 or np.int64(payload[at]) >> 8 >= tables:
                return MALFORMED
            table_state = state[np.int64(payload[at]) >> 8]
            if np.int64(payload[at]) & 255 == GROW:
                if records != 1:
                    return MALFORMED
                if 2 * table_state[_BUCKETS] > buckets_most:
                    return TOO_LARGE
            taken = _check_record(payload, at, end, words, table_state, value_slots)
            if taken == 0:
                return MALFORMED
            work += _work(payload, at)
            if work > work_most:
                return TOO_MUCH
            at += taken
        if at != end:
            return MALFORMED
    return SOUND if at == size else MALFORMED


@kernel
def _work(payload: U32, at: Int) -> Int:
    """What it takes to apply a well-formed record, in records of one value or bucket."""
    kind = np.int64(payload[at]) & 255
    if kind == NODES:
        return 1 + np.int64(payload[at + 1]) // _NODES_WORK
    if kind == CLEAR_WORKER:
        return 1 + np.int64(payload[at + 3]) // _CLEAR_WORK
    if kind == SPREAD:
        return 1 + np.int64(payload[at + 2]) // _SPREAD_WORK
    if kind == SPLIT:
        return 1 + np.int64(payload[at + 2]) // _SPLIT_WORK
    return 1


@kernel
def _check_record(payload: U32, at: Int, end: Int, words: Words, state: I64, value_slots: Int) -> Int:
    """Words of the record at `at`, 0 if it is malformed; brings `state` of its table up to date."""
    kind = np.int64(payload[at]) & 255
    subject = np.int64(payload[at + 1])
    room = end - at
    if kind == VALUE:
        sound = room >= value_words(words) and subject < SLOTS * state[_BUCKETS]
        return value_words(words) if sound else 0
    if kind == BUCKET:
        sound = room >= bucket_words(words) and subject < state[_BUCKETS]
        return bucket_words(words) if sound and _tail_is_sound(payload, at, words) else 0
    if kind == NODES:
        if room - 2 < subject:
            return 0
        for i in range(subject):
            if np.int64(payload[at + 2 + i]) >> 1 >= state[_NODES]:
                return 0
        return 2 + subject
    if kind == CLEAR_WORKER:
        if room < CLEAR_WORDS or subject >= value_slots:
            return 0
        sound = np.int64(payload[at + 2]) + np.int64(payload[at + 3]) <= state[_BUCKETS]
        return CLEAR_WORDS if sound else 0
    if kind == GROW:
        return _check_grow(subject, words, state)
    if state[_GROWS] == 0 or room < 3:
        return 0
    count = np.int64(payload[at + 2])
    if kind == SPREAD:
        if subject > state[_SPREAD] or subject + count > bit_words(words, state[_NODES]):
            return 0
        state[_SPREAD] = max(state[_SPREAD], subject + count)
        return SPREAD_WORDS
    if kind == SPLIT:
        taken = 3 + (count + 7) // 8
        if room < taken or subject > state[_SPLIT] or subject + count > state[_BUCKETS]:
            return 0
        state[_SPLIT] = max(state[_SPLIT], subject + count)
        return taken
    return 0


@kernel
def _check_grow(subject: Int, words: Words, state: I64) -> Int:
    if subject == GROW_BEGIN:
        if state[_GROWS] != 0 or 2 * state[_NODES] >= NODES_MOST:
            return 0
        state[_GROWS] = 1
        return GROW_WORDS
    whole = state[_SPLIT] == state[_BUCKETS] and state[_SPREAD] == bit_words(words, state[_NODES])
    if subject != GROW_SWAP or state[_GROWS] == 0 or not whole:
        return 0
    state[_BUCKETS] *= 2
    state[_NODES] *= 2
    state[_GROWS] = state[_SPREAD] = state[_SPLIT] = 0
    return GROW_WORDS


@kernel
def _tail_is_sound(payload: U32, at: Int, words: Words) -> bool:
    """Whether the seed and the fingerprints of a BUCKET record fit their bits."""
    if words.dtype == WIDE:
        return bool(payload[at + 10] <= 255) and np.uint64(payload[at + 12]) >> _24 == _0
    return bool(payload[at + 6] <= 255)
