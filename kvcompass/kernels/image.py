"""A table's image: the words a keyless view needs, and the row that describes them.

An image is a run of uint32 words: Othello bits (node n is bit n%32 of word n//32), padded to a 64-byte line,
then bucket lines. A line of 16 words holds three buckets: words 0-11 are their values (bucket-major), word 12
their seeds (one byte a bucket, the fourth unused), words 13-15 their four 8-bit fingerprints each.
A lookup thus touches two Othello words and one line. 47 bits an entry at 95 % occupancy.

The row (uint64) is the same for writer and view; a view's directory is a matrix of rows over one arena.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U32, U64, Int
from kvcompass.kernels.hashing import (
    fingerprint_of,
    first_bucket,
    first_node,
    mix_bucket,
    mix_node,
    mix_word,
    second_bucket,
    second_node,
    slot_of,
)
from kvcompass.kernels.jit import kernel

BASE: Final = 0
"""Arena index of the image's first word."""
LINES: Final = 1
"""Offset of the first bucket line in the image, words."""
BUCKETS: Final = 2
NODES_A: Final = 3
NODES_B: Final = 4
SALT: Final = 5
TABLE: Final = 6
"""Table id within the shard; enters the digest."""
DIGEST: Final = 7
"""Running digest of the image; every write goes through `put_word`, which keeps it true."""
ROW: Final = 8
"""Columns of a row."""

LINE_WORDS: Final = 16
LINE_BUCKETS: Final = 3
SLOTS: Final = 4
SEED_WORD: Final = 12
PRINT_WORD: Final = 13

_ONE: Final = np.uint64(1)
_2: Final = np.uint64(2)
_3: Final = np.uint64(3)
_4: Final = np.uint64(4)
_5: Final = np.uint64(5)
_BYTE: Final = np.uint64(255)
_31: Final = np.uint64(31)
_40: Final = np.uint64(40)
_12: Final = np.uint64(SEED_WORD)
_13: Final = np.uint64(PRINT_WORD)


@kernel
def put_word(words: U32, row: U64, index: np.uint64, word: np.uint64) -> None:
    """Write word `index` of an image (relative to BASE) and update the row's digest."""
    at = row[BASE] + index
    position = (row[TABLE] << _40) | index
    row[DIGEST] ^= mix_word(position, np.uint64(words[at])) ^ mix_word(position, word)
    words[at] = np.uint32(word)


@kernel
def read_bit(words: U32, row: U64, node: np.uint64) -> np.uint64:
    """Othello bit of a node."""
    word = np.uint64(words[row[BASE] + (node >> _5)])
    return (word >> (node & _31)) & _ONE


@kernel
def put_bit(words: U32, row: U64, node: np.uint64, bit: np.uint64) -> None:
    """Set the Othello bit of a node to 0 or 1."""
    index = node >> _5
    shift = node & _31
    word = np.uint64(words[row[BASE] + index])
    put_word(words, row, index, (word & ~(_ONE << shift)) | (bit << shift))


@kernel
def line_of(row: U64, bucket: np.uint64) -> np.uint64:
    """Offset in the image of the line that holds a bucket."""
    lines: np.uint64 = row[LINES]
    return lines + ((bucket // _3) << _4)


@kernel
def value_index(row: U64, bucket: np.uint64, slot: np.uint64) -> np.uint64:
    """Offset in the image of a slot's value."""
    return line_of(row, bucket) + ((bucket % _3) << _2) + slot


@kernel
def read_seed(words: U32, row: U64, bucket: np.uint64) -> np.uint64:
    """Seed of a bucket, 0..255."""
    return (np.uint64(words[row[BASE] + line_of(row, bucket) + _12]) >> ((bucket % _3) << _3)) & _BYTE


@kernel
def put_seed(words: U32, row: U64, bucket: np.uint64, seed: np.uint64) -> None:
    """Write a bucket's seed."""
    index = line_of(row, bucket) + _12
    shift = (bucket % _3) << _3
    word = np.uint64(words[row[BASE] + index])
    put_word(words, row, index, (word & ~(_BYTE << shift)) | (seed << shift))


@kernel
def prints_index(row: U64, bucket: np.uint64) -> np.uint64:
    """Offset in the image of a bucket's four fingerprints."""
    return line_of(row, bucket) + _13 + (bucket % _3)


@kernel
def named_bucket(words: U32, row: U64, bucket_mix: np.uint64, node_mix: np.uint64) -> np.uint64:
    """The candidate bucket that the Othello names for a key."""
    a = first_node(node_mix, row[NODES_A])
    b = second_node(node_mix, row[NODES_A], row[NODES_B])
    if (read_bit(words, row, a) ^ read_bit(words, row, b)) == _ONE:
        return second_bucket(bucket_mix, row[BUCKETS])
    return first_bucket(bucket_mix, row[BUCKETS])


@kernel
def read_key(words: U32, row: U64, key: np.uint64) -> np.uint64:
    """Value of a key, exact if it is present; else 0, or another key's value if the fingerprints agree."""
    bucket_mix = mix_bucket(key ^ row[SALT])
    node_mix = mix_node(key ^ row[SALT])
    bucket = named_bucket(words, row, bucket_mix, node_mix)
    part = bucket % _3
    line = row[BASE] + row[LINES] + ((bucket // _3) << _4)
    seed = (np.uint64(words[line + _12]) >> (part << _3)) & _BYTE
    slot = slot_of(node_mix, seed)
    stored = (np.uint64(words[line + _13 + part]) >> (slot << _3)) & _BYTE
    if stored != fingerprint_of(bucket_mix, node_mix):
        return np.uint64(0)
    return np.uint64(words[line + (part << _2) + slot])


@kernel
def start_digest(row: U64) -> None:
    """Set the digest of an all-zero image: it covers table, size and salt."""
    digest = np.uint64(0)
    for column in (TABLE, BUCKETS, NODES_A, NODES_B, SALT):
        digest = mix_node(mix_bucket(digest) ^ row[column])
    row[DIGEST] = digest


@kernel
def digest_words(words: U32, row: U64, size: Int) -> None:
    """Set the digest of an image of `size` words from scratch, as `put_word` would have kept it."""
    start_digest(row)
    for i in range(size):
        index = np.uint64(i)
        row[DIGEST] ^= mix_word((row[TABLE] << _40) | index, np.uint64(words[row[BASE] + index]))
