"""Writing, checking and applying patch groups as uint32 words; `kvcompass.index.patches` has the format."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U32, U64, Int, Words
from kvcompass.kernels.buckets import put_seed_and_prints, put_value, read_prints, read_seed, read_value
from kvcompass.kernels.image import BUCKETS, LINES, NODES_A, NODES_B, SLOTS, WIDE, put_bit
from kvcompass.kernels.jit import kernel

VALUE: Final = 1
BUCKET: Final = 2
NODES: Final = 3
CLEAR_WORKER: Final = 4
GROW: Final = 5

GROUP_HEADER: Final = 2
BUCKET_WORDS_MOST: Final = 13
"""Words of a BUCKET record in the layout where it is longest."""
CLEAR_WORDS: Final = 2

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
def check_groups(
    payload: U32, count: Int, words: Words, directory: U64, first_row: Int, tables: Int, value_slots: Int
) -> bool:
    """Whether `payload` is exactly `count` well-formed groups for the tables at first_row of `directory`."""
    at: Int = 0
    size = payload.size
    for _ in range(count):
        if size - at < GROUP_HEADER:
            return False
        length = np.int64(payload[at])
        records = np.int64(payload[at + 1])
        if length < GROUP_HEADER or length > size - at:
            return False
        end = at + length
        at += GROUP_HEADER
        for _ in range(records):
            if end - at < 2:
                return False
            kind = np.int64(payload[at]) & 255
            table = np.int64(payload[at]) >> 8
            subject = np.uint64(payload[at + 1])
            if table >= tables:
                return False
            row = directory[first_row + table]
            if kind == VALUE:
                if end - at < value_words(words) or subject >= row[BUCKETS] << _2:
                    return False
                at += value_words(words)
            elif kind == BUCKET:
                if end - at < bucket_words(words) or subject >= row[BUCKETS]:
                    return False
                if not _tail_is_sound(payload, at, words):
                    return False
                at += bucket_words(words)
            elif kind == NODES:
                nodes = np.int64(subject)
                if end - at - 2 < nodes:
                    return False
                limit = row[NODES_A] + row[NODES_B]
                for i in range(nodes):
                    if np.uint64(payload[at + 2 + i]) >> _1 >= limit:
                        return False
                at += 2 + nodes
            elif kind == CLEAR_WORKER:
                if subject >= np.uint64(value_slots):
                    return False
                at += CLEAR_WORDS
            else:
                return False
        if at != end:
            return False
    return at == size


@kernel
def _tail_is_sound(payload: U32, at: Int, words: Words) -> bool:
    """Whether the seed and the fingerprints of a BUCKET record fit their bits."""
    if words.dtype == WIDE:
        return bool(payload[at + 10] <= 255) and np.uint64(payload[at + 12]) >> _24 == _0
    return bool(payload[at + 6] <= 255)


@kernel
def apply_groups(payload: U32, skip: Int, words: Words, directory: U64, first_row: Int) -> None:
    """Apply all groups of a checked payload but the first `skip`. Mutates `words` and the rows' digests."""
    at: Int = 0
    for _ in range(skip):
        at += np.int64(payload[at])
    while at < payload.size:
        end = at + np.int64(payload[at])
        at += GROUP_HEADER
        while at < end:
            at = _apply_record(payload, at, words, directory, first_row)


@kernel
def _apply_record(payload: U32, at: Int, words: Words, directory: U64, first_row: Int) -> Int:
    kind = np.int64(payload[at]) & 255
    row = directory[first_row + (np.int64(payload[at]) >> 8)]
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
        return at + 2 + nodes
    clear_field(words, row, subject)
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
def clear_field(words: Words, row: U64, slot: np.uint64) -> None:
    """Zero one worker's 2-bit field in every value of a table. Scans the whole image."""
    mask = ~(_3 << (slot << _1))
    for b in range(np.int64(row[BUCKETS])):
        for j in range(SLOTS):
            value = read_value(words, row, np.uint64(b), np.uint64(j))
            if value & mask != value:
                put_value(words, row, np.uint64(b), np.uint64(j), value & mask)
