"""Writing, checking and applying patch groups as uint32 words; `kvcompass.index.patches` has the format."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I64, U32, U64, Int, Words
from kvcompass.kernels.buckets import (
    put_seed_and_prints,
    put_value,
    read_prints,
    read_seed,
    read_value,
    value_index,
)
from kvcompass.kernels.image import (
    BASE,
    BUCKETS,
    LINES,
    NODES_A,
    NODES_B,
    NODES_MOST,
    SLOTS,
    WIDE,
    bit_words,
    put_bit,
)
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.prefetch import prefetch
from kvcompass.kernels.split import put_children, split_bucket, spread_words

VALUE: Final = 1
BUCKET: Final = 2
NODES: Final = 3
CLEAR_WORKER: Final = 4
GROW: Final = 5
SPREAD: Final = 6
SPLIT: Final = 7

GROW_BEGIN: Final = 0
"""Subject of a GROW record: an empty table of twice the size is laid beside this one."""
GROW_SWAP: Final = 1
"""It has split all of this one and takes its place."""

GROUP_HEADER: Final = 2
BUCKET_WORDS_MOST: Final = 13
"""Words of a BUCKET record in the layout where it is longest."""
CLEAR_WORDS: Final = 4
GROW_WORDS: Final = 2
SPREAD_WORDS: Final = 3
SPLIT_ONE_WORDS: Final = 4
"""Words of a SPLIT record of up to eight buckets."""

WORDS_SPREAD: Final = 0
"""Column of a view's growth state: words of Othello bits copied so far."""
BUCKETS_SPLIT: Final = 1
"""The same: buckets split so far, from 0 on."""
GROWTH: Final = 2
"""Columns of it."""

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_3: Final = np.uint64(3)
_24: Final = np.uint64(24)
_32: Final = np.uint64(32)


@kernel
def value_words(words: Words) -> Int:
    """Words of a VALUE record."""
    return 4 if words.dtype == WIDE else 3


@kernel
def bucket_words(words: Words) -> Int:
    """Words of a BUCKET record."""
    if words.dtype == LINES:
        return 8
    return 13 if words.dtype == WIDE else 7


@kernel
def write_long(out: U32, at: Int, words: Words, value: np.uint64) -> Int:
    """Append a value as one word, or two, low half first; returns the new end."""
    out[at] = np.uint32(value & np.uint64(0xFFFFFFFF))
    if words.dtype == WIDE:
        out[at + 1] = np.uint32(value >> _32)
        return at + 2
    return at + 1


@kernel
def read_long(payload: U32, at: Int, words: Words) -> np.uint64:
    """What `write_long` wrote at `at`."""
    if words.dtype == WIDE:
        return np.uint64(payload[at]) | (np.uint64(payload[at + 1]) << _32)
    return np.uint64(payload[at])


@kernel
def write_value(
    out: U32, at: Int, words: Words, table: Int, bucket: np.uint64, slot: np.uint64, value: np.uint64
) -> Int:
    """Append a VALUE record; returns the new end."""
    out[at] = np.uint32(VALUE | (table << 8))
    out[at + 1] = np.uint32((bucket << _2) | slot)
    return write_long(out, at + 2, words, value)


@kernel
def write_bucket(out: U32, at: Int, words: Words, row: U64, table: Int, bucket: np.uint64) -> Int:
    """Append a BUCKET record holding the bucket's present image; returns the new end."""
    out[at] = np.uint32(BUCKET | (table << 8))
    out[at + 1] = np.uint32(bucket)
    end = at + 2
    for slot in range(SLOTS):
        end = write_long(out, end, words, read_value(words, row, bucket, np.uint64(slot)))
    out[end] = np.uint32(read_seed(words, row, bucket))
    end += 1
    if words.dtype == LINES or words.dtype == WIDE:
        end = write_long(out, end, words, read_prints(words, row, bucket))
    return end


@kernel
def write_spread(out: U32, at: Int, table: Int, first: Int, count: Int) -> Int:
    """Append a SPREAD record; returns the new end."""
    out[at] = np.uint32(SPREAD | (table << 8))
    out[at + 1] = np.uint32(first)
    out[at + 2] = np.uint32(count)
    return at + SPREAD_WORDS


@kernel
def begin_split(out: U32, at: Int, table: Int, first: Int, count: Int) -> Int:
    """Append a SPLIT record whose split bits are all 0 as yet (`put_split`); returns the new end."""
    out[at] = np.uint32(SPLIT | (table << 8))
    out[at + 1] = np.uint32(first)
    out[at + 2] = np.uint32(count)
    end = at + 3 + (count + 7) // 8
    for i in range(at + 3, end):
        out[i] = np.uint32(0)
    return end


@kernel
def put_split(out: U32, begin: Int, number: Int, split: np.uint64) -> None:
    """Write the split bits of the record's bucket `number`; its bits begin at out[begin]."""
    out[begin + number // 8] |= np.uint32(split << np.uint64(4 * (number & 7)))


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
) -> bool:
    """Whether `payload` is exactly `count` well-formed groups for the tables at first_row of `directory`.

    The first `skip` groups will not be applied: only their lengths are looked at.
    `wide` and `growth` are rows of the tables that double others and how far they are, as `directory`.
    `state` (int64[tables, 5], overwritten) follows what the groups will have changed of all that.
    """
    for table in range(tables):
        row = directory[first_row + table]
        state[table, _BUCKETS] = row[BUCKETS]
        state[table, _NODES] = row[NODES_A] + row[NODES_B]
        state[table, _GROWS] = wide[first_row + table, BUCKETS] != _0
        state[table, _SPREAD] = growth[first_row + table, WORDS_SPREAD]
        state[table, _SPLIT] = growth[first_row + table, BUCKETS_SPLIT]
    at: Int = 0
    size = payload.size
    for group in range(count):
        if size - at < GROUP_HEADER:
            return False
        length = np.int64(payload[at])
        records = np.int64(payload[at + 1])
        if length < GROUP_HEADER or length > size - at:
            return False
        if group < skip:
            at += length
            continue
        end = at + length
        at += GROUP_HEADER
        for _ in range(records):
            if end - at < 2 or np.int64(payload[at]) >> 8 >= tables:
                return False
            table_state = state[np.int64(payload[at]) >> 8]
            if np.int64(payload[at]) & 255 == GROW and records != 1:
                return False
            taken = _check_record(payload, at, end, words, table_state, value_slots)
            if taken == 0:
                return False
            at += taken
        if at != end:
            return False
    return at == size


_BUCKETS: Final = 0
_NODES: Final = 1
_GROWS: Final = 2
_SPREAD: Final = 3
_SPLIT: Final = 4
CHECKING: Final = 5
"""Columns of `check_groups`' state."""


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


_AHEAD: Final = 12
"""Groups between the one being applied and the one whose memory is asked for."""


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


@kernel
def write_clear(out: U32, at: Int, table: Int, slot: Int, first: Int, count: Int) -> Int:
    """Append a CLEAR_WORKER record; returns the new end."""
    out[at] = np.uint32(CLEAR_WORKER | (table << 8))
    out[at + 1] = np.uint32(slot)
    out[at + 2] = np.uint32(first)
    out[at + 3] = np.uint32(count)
    return at + CLEAR_WORDS
