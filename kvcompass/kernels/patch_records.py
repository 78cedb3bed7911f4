"""Writing, checking and applying patch groups as uint32 words; `kvcompass.index.patches` has the format."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U32, U64, Int
from kvcompass.kernels.image import (
    BASE,
    BUCKETS,
    NODES_A,
    NODES_B,
    prints_index,
    put_bit,
    put_seed,
    put_word,
    read_seed,
    value_index,
)
from kvcompass.kernels.jit import kernel

VALUE: Final = 1
BUCKET: Final = 2
NODES: Final = 3
CLEAR_WORKER: Final = 4
GROW: Final = 5

GROUP_HEADER: Final = 2
VALUE_WORDS: Final = 3
BUCKET_WORDS: Final = 8
CLEAR_WORDS: Final = 2

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_3: Final = np.uint64(3)
_4: Final = np.uint64(4)
_8: Final = np.uint64(8)


@kernel
def write_value(out: U32, at: Int, table: Int, bucket: np.uint64, slot: np.uint64, value: np.uint64) -> Int:
    """Append a VALUE record; returns the new end."""
    out[at] = np.uint32(VALUE | (table << 8))
    out[at + 1] = np.uint32((bucket << _2) | slot)
    out[at + 2] = np.uint32(value)
    return at + VALUE_WORDS


@kernel
def write_bucket(out: U32, at: Int, words: U32, row: U64, table: Int, bucket: np.uint64) -> Int:
    """Append a BUCKET record holding the bucket's present image; returns the new end."""
    out[at] = np.uint32(BUCKET | (table << 8))
    out[at + 1] = np.uint32(bucket)
    for j in range(4):
        out[at + 2 + j] = words[row[BASE] + value_index(row, bucket, np.uint64(j))]
    out[at + 6] = np.uint32(read_seed(words, row, bucket))
    out[at + 7] = words[row[BASE] + prints_index(row, bucket)]
    return at + BUCKET_WORDS


@kernel
def check_groups(
    payload: U32, count: Int, directory: U64, first_row: Int, tables: Int, value_slots: Int
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
                if end - at < VALUE_WORDS or subject >= row[BUCKETS] << _2:
                    return False
                at += VALUE_WORDS
            elif kind == BUCKET:
                if end - at < BUCKET_WORDS or subject >= row[BUCKETS] or payload[at + 6] > 255:
                    return False
                at += BUCKET_WORDS
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
def apply_groups(payload: U32, skip: Int, words: U32, directory: U64, first_row: Int) -> None:
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
def _apply_record(payload: U32, at: Int, words: U32, directory: U64, first_row: Int) -> Int:
    kind = np.int64(payload[at]) & 255
    row = directory[first_row + (np.int64(payload[at]) >> 8)]
    subject = np.uint64(payload[at + 1])
    if kind == VALUE:
        put_word(words, row, value_index(row, subject >> _2, subject & _3), np.uint64(payload[at + 2]))
        return at + VALUE_WORDS
    if kind == BUCKET:
        for j in range(4):
            put_word(words, row, value_index(row, subject, np.uint64(j)), np.uint64(payload[at + 2 + j]))
        put_seed(words, row, subject, np.uint64(payload[at + 6]))
        put_word(words, row, prints_index(row, subject), np.uint64(payload[at + 7]))
        return at + BUCKET_WORDS
    if kind == NODES:
        nodes = np.int64(subject)
        for i in range(nodes):
            node = np.uint64(payload[at + 2 + i])
            put_bit(words, row, node >> _1, node & _1)
        return at + 2 + nodes
    clear_field(words, row, subject)
    return at + CLEAR_WORDS


@kernel
def clear_field(words: U32, row: U64, slot: np.uint64) -> None:
    """Zero one worker's 2-bit field in every value of a table. Scans the whole image."""
    mask = ~(_3 << (slot << _1))
    for b in range(np.int64(row[BUCKETS])):
        for j in range(4):
            index = value_index(row, np.uint64(b), np.uint64(j))
            value = np.uint64(words[row[BASE] + index])
            if value & mask != value:
                put_word(words, row, index, value & mask)
