"""Records of patch groups as uint32 words, and writing them; `kvcompass.index.patches` has the format."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U32, U64, Int, Words
from kvcompass.kernels.buckets import read_prints, read_seed, read_value
from kvcompass.kernels.image import LINES, SLOTS, WIDE
from kvcompass.kernels.jit import kernel

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

_2: Final = np.uint64(2)
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
def write_clear(out: U32, at: Int, table: Int, slot: Int, first: Int, count: Int) -> Int:
    """Append a CLEAR_WORKER record; returns the new end."""
    out[at] = np.uint32(CLEAR_WORKER | (table << 8))
    out[at + 1] = np.uint32(slot)
    out[at + 2] = np.uint32(first)
    out[at + 3] = np.uint32(count)
    return at + CLEAR_WORDS


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
