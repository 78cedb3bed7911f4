"""A table's image: the words a keyless view needs, and the row that describes them.

An image is a run of words: Othello bits (of W-bit words, node n is bit n%W of word n//W), padded to a 64-byte
line, then buckets, laid out as `buckets` says. The words' dtype tells the layouts apart, so that every kernel
is compiled for one of them and asks nothing when it runs.

The row (uint64) is the same for writer and view; a view's directory is a matrix of rows over one arena.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Int, Words
from kvcompass.kernels.hashing import mix_bucket, mix_node, mix_place, mix_word
from kvcompass.kernels.jit import kernel

BASE: Final = 0
"""Arena index of the image's first word."""
VALUES: Final = 1
"""Offset of the first bucket in the image, words."""
BUCKETS: Final = 2
NODES_A: Final = 3
NODES_B: Final = 4
SALT: Final = 5
"""Odd; what a table multiplies the mixes of keys by."""
TABLE: Final = 6
"""Table id within the shard; enters the digest."""
DIGEST: Final = 7
"""Running digest of the image; every write goes through `put_word`, which keeps it true."""
ROW: Final = 8
"""Columns of a row."""

SLOTS: Final = 4
"""Slots a bucket."""
NODES_MOST: Final = 1 << 31
"""A node and its bit must fit one word of a patch: a table has fewer nodes."""
LINE_BYTES: Final = 64
"""A cache line."""

LINES: Final = np.dtype(np.uint32)
"""dtype of images with 32-bit values and 8-bit fingerprints."""
WIDE: Final = np.dtype(np.uint64)
"""dtype of images with 64-bit values and 14-bit fingerprints."""
PAPER: Final = np.dtype(np.uint16)
"""dtype of images with 32-bit values and no fingerprints."""

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_4: Final = np.uint64(4)
_5: Final = np.uint64(5)
_6: Final = np.uint64(6)
_40: Final = np.uint64(40)


@kernel
def put_word(words: Words, row: U64, index: np.uint64, word: np.uint64) -> None:
    """Write word `index` of an image (relative to BASE) and update the row's digest."""
    at = row[BASE] + index
    if np.uint64(words[at]) == word:
        return
    place = mix_place((row[TABLE] << _40) | index)
    row[DIGEST] ^= mix_word(place, np.uint64(words[at])) ^ mix_word(place, word)
    words[at] = word


@kernel
def node_shift(words: Words) -> np.uint64:
    """Binary logarithm of a word's bits."""
    if words.dtype == LINES:
        return _5
    if words.dtype == WIDE:
        return _6
    return _4


@kernel
def bit_words(words: Words, nodes: Int) -> Int:
    """Words that the bits of so many nodes take."""
    shift = np.int64(node_shift(words))
    return (nodes + (1 << shift) - 1) >> shift


@kernel
def node_word(words: Words, row: U64, node: np.uint64) -> np.uint64:
    """Arena index of the word that holds a node's bit."""
    base: np.uint64 = row[BASE]
    return base + (node >> node_shift(words))


@kernel
def read_bit(words: Words, row: U64, node: np.uint64) -> np.uint64:
    """Othello bit of a node."""
    within = (_1 << node_shift(words)) - _1
    return (np.uint64(words[node_word(words, row, node)]) >> (node & within)) & _1


@kernel
def put_bit(words: Words, row: U64, node: np.uint64, bit: np.uint64) -> None:
    """Set the Othello bit of a node to 0 or 1."""
    shift = node & ((_1 << node_shift(words)) - _1)
    word = np.uint64(words[node_word(words, row, node)])
    put_word(words, row, node >> node_shift(words), (word & ~(_1 << shift)) | (bit << shift))


@kernel
def start_digest(row: U64) -> None:
    """Set the digest of an all-zero image: it covers table, size and salt."""
    digest = np.uint64(0)
    for column in (TABLE, BUCKETS, NODES_A, NODES_B, SALT):
        digest = mix_node(mix_bucket(digest) ^ row[column])
    row[DIGEST] = digest
