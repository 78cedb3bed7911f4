"""Buckets within an image, in three layouts: four values, a seed and, in two of them, fingerprints.

    dtype          words of a bucket                                            bits an entry at 95 %
    LINES uint32   a 64-byte line of 16 words holds three buckets: words 0-11 their values (bucket-major),
                   word 12 their seeds (a byte each, the fourth unused), words 13-15 their four 8-bit
                   fingerprints each                                            47
    WIDE uint64    5 words: four values, then seed | fingerprints << 8 (14 bits each)   87
    PAPER uint16   8 words: four values, low half first; after all buckets their seeds, two a word   38

A lookup touches two Othello words and one line (WIDE: one or two lines, PAPER: two). With p-bit fingerprints
a key never inserted finds a value in 2^-p of the slots taken, without in all of them.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Words
from kvcompass.kernels.hashing import (
    first_bucket,
    first_node,
    mix_print,
    second_bucket,
    second_node,
    slot_of,
)
from kvcompass.kernels.image import (
    BASE,
    BUCKETS,
    LINES,
    NODES_A,
    NODES_B,
    PAPER,
    SLOTS,
    VALUES,
    WIDE,
    put_word,
    read_bit,
)
from kvcompass.kernels.jit import kernel

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_3: Final = np.uint64(3)
_4: Final = np.uint64(4)
_5: Final = np.uint64(5)
_8: Final = np.uint64(8)
_12: Final = np.uint64(12)
_13: Final = np.uint64(13)
_14: Final = np.uint64(14)
_16: Final = np.uint64(16)
_50: Final = np.uint64(50)
_56: Final = np.uint64(56)
_BYTE: Final = np.uint64(0xFF)
_HALF: Final = np.uint64(0xFFFF)
_PRINT: Final = np.uint64(0x3FFF)


@kernel
def value_index(words: Words, row: U64, bucket: np.uint64, slot: np.uint64) -> np.uint64:
    """Offset in the image of (the first word of) a slot's value."""
    first: np.uint64 = row[VALUES]
    if words.dtype == LINES:
        return first + ((bucket // _3) << _4) + ((bucket % _3) << _2) + slot
    if words.dtype == WIDE:
        return first + bucket * _5 + slot
    return first + (bucket << _3) + (slot << _1)


@kernel
def seed_index(words: Words, row: U64, bucket: np.uint64) -> np.uint64:
    """Offset in the image of the word that holds a bucket's seed."""
    first: np.uint64 = row[VALUES]
    buckets: np.uint64 = row[BUCKETS]
    if words.dtype == LINES:
        return first + ((bucket // _3) << _4) + _12
    if words.dtype == WIDE:
        return first + bucket * _5 + _4
    return first + (buckets << _3) + (bucket >> _1)


@kernel
def seed_shift(words: Words, bucket: np.uint64) -> np.uint64:
    """Position of a bucket's seed in its word, bits."""
    if words.dtype == LINES:
        return (bucket % _3) << _3
    if words.dtype == WIDE:
        return _0
    return (bucket & _1) << _3


@kernel
def read_value(words: Words, row: U64, bucket: np.uint64, slot: np.uint64) -> np.uint64:
    """Value of a slot."""
    at = row[BASE] + value_index(words, row, bucket, slot)
    if words.dtype == PAPER:
        return np.uint64(words[at]) | (np.uint64(words[at + _1]) << _16)
    return np.uint64(words[at])


@kernel
def put_value(words: Words, row: U64, bucket: np.uint64, slot: np.uint64, value: np.uint64) -> None:
    """Write the value of a slot."""
    index = value_index(words, row, bucket, slot)
    if words.dtype == PAPER:
        put_word(words, row, index, value & _HALF)
        put_word(words, row, index + _1, value >> _16)
    else:
        put_word(words, row, index, value)


@kernel
def read_seed(words: Words, row: U64, bucket: np.uint64) -> np.uint64:
    """Seed of a bucket, 0..255."""
    word = np.uint64(words[row[BASE] + seed_index(words, row, bucket)])
    return (word >> seed_shift(words, bucket)) & _BYTE


@kernel
def read_prints(words: Words, row: U64, bucket: np.uint64) -> np.uint64:
    """The four fingerprints of a bucket, slot 0 lowest (`print_shift`); 0 in a layout without."""
    at = row[BASE] + seed_index(words, row, bucket)
    if words.dtype == LINES:
        return np.uint64(words[at + _1 + bucket % _3])
    if words.dtype == WIDE:
        return np.uint64(words[at]) >> _8
    return _0


@kernel
def put_seed_and_prints(
    words: Words, row: U64, bucket: np.uint64, seed: np.uint64, prints: np.uint64
) -> None:
    """Write a bucket's seed and its four fingerprints, which are 0 in a layout without."""
    index = seed_index(words, row, bucket)
    if words.dtype == WIDE:
        put_word(words, row, index, seed | (prints << _8))
    else:
        shift = seed_shift(words, bucket)
        word = np.uint64(words[row[BASE] + index])
        put_word(words, row, index, (word & ~(_BYTE << shift)) | (seed << shift))
        if words.dtype == LINES:
            put_word(words, row, index + _1 + bucket % _3, prints)


@kernel
def fingerprint(words: Words, bucket_mix: np.uint64, node_mix: np.uint64) -> np.uint64:
    """Fingerprint of a key; 0 in a layout without."""
    if words.dtype == LINES:
        return mix_print(bucket_mix, node_mix) >> _56
    if words.dtype == WIDE:
        return mix_print(bucket_mix, node_mix) >> _50
    return _0


@kernel
def print_shift(words: Words, slot: np.uint64) -> np.uint64:
    """Position of a slot's fingerprint in `read_prints`, bits."""
    if words.dtype == LINES:
        return slot << _3
    return slot * _14


@kernel
def read_print(words: Words, row: U64, bucket: np.uint64, slot: np.uint64) -> np.uint64:
    """Fingerprint in a slot; 0 in a layout without."""
    mask = _BYTE if words.dtype == LINES else _PRINT
    return (read_prints(words, row, bucket) >> print_shift(words, slot)) & mask


@kernel
def with_print(words: Words, prints: np.uint64, slot: np.uint64, key_print: np.uint64) -> np.uint64:
    """A bucket's four fingerprints with another one in a slot."""
    shift = print_shift(words, slot)
    mask = _BYTE if words.dtype == LINES else _PRINT
    return (prints & ~(mask << shift)) | (key_print << shift)


@kernel
def named_bucket(words: Words, row: U64, bucket_mix: np.uint64, node_mix: np.uint64) -> np.uint64:
    """The candidate bucket that the Othello names for a key."""
    a = first_node(node_mix, row[NODES_A])
    b = second_node(node_mix, row[NODES_A], row[NODES_B])
    if (read_bit(words, row, a) ^ read_bit(words, row, b)) == _1:
        return second_bucket(bucket_mix, row[BUCKETS])
    return first_bucket(bucket_mix, row[BUCKETS])


@kernel
def read_bucket(
    words: Words, row: U64, bucket: np.uint64, bucket_mix: np.uint64, node_mix: np.uint64
) -> np.uint64:
    """Value of a key in the bucket named for it; 0 where another key's fingerprint stands."""
    slot = slot_of(node_mix, read_seed(words, row, bucket))
    if read_print(words, row, bucket, slot) != fingerprint(words, bucket_mix, node_mix):
        return _0
    return read_value(words, row, bucket, slot)


@kernel
def copy_values(words: Words, row: U64, values: U64) -> None:
    """Fill values[4 * buckets] with all slots' values, by position (4 * bucket + slot)."""
    for bucket in range(np.int64(row[BUCKETS])):
        for slot in range(SLOTS):
            values[4 * bucket + slot] = read_value(words, row, np.uint64(bucket), np.uint64(slot))
