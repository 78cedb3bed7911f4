"""Doubling an image by splitting: bucket b becomes 2b and 2b+1, and so does each Othello node.

Fastrange over twice the range sends what went to b to 2b or 2b+1. With the same salt a key thus moves to one
of its bucket's two children, under the same seed and in the same slot; one *split bit* a slot says which, and
that is all a keyless view must be told. Both children of a node copy its bit, so every key's bit stays.
The doubled image is a function of the first one and the split bits: splitting a bucket again is harmless.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Int, Words
from kvcompass.kernels.buckets import (
    print_shift,
    put_seed_and_prints,
    put_value,
    read_print,
    read_seed,
    read_value,
)
from kvcompass.kernels.image import BASE, SLOTS, node_shift, put_bit, put_word
from kvcompass.kernels.jit import kernel

WORDS_SPREAD: Final = 0
"""Column of a view's growth state: words of Othello bits copied so far."""
BUCKETS_SPLIT: Final = 1
"""The same: buckets split so far, from 0 on."""
GROWTH: Final = 2
"""Columns of it."""

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_2: Final = np.uint64(2)
_4: Final = np.uint64(4)
_8: Final = np.uint64(8)
_16: Final = np.uint64(16)
_MASKS: Final = (
    np.uint64(0x0000FFFF0000FFFF),
    np.uint64(0x00FF00FF00FF00FF),
    np.uint64(0x0F0F0F0F0F0F0F0F),
    np.uint64(0x3333333333333333),
    np.uint64(0x5555555555555555),
)


@kernel
def _doubled_bits(x: np.uint64) -> np.uint64:
    """Each of the low 32 bits twice."""
    x = (x | (x << _16)) & _MASKS[0]
    x = (x | (x << _8)) & _MASKS[1]
    x = (x | (x << _4)) & _MASKS[2]
    x = (x | (x << _2)) & _MASKS[3]
    x = (x | (x << _1)) & _MASKS[4]
    return x | (x << _1)


@kernel
def spread_words(words: Words, row: U64, wide_words: Words, wide_row: U64, first: Int, end: Int) -> None:
    """Copy the Othello bits in words first..end-1 of an image to both children of their nodes."""
    half = (_1 << node_shift(words)) >> _1
    for i in range(first, end):
        index = np.uint64(i)
        word = np.uint64(words[row[BASE] + index])
        low = word & ((_1 << half) - _1)
        put_word(wide_words, wide_row, index << _1, _doubled_bits(low))
        put_word(wide_words, wide_row, (index << _1) | _1, _doubled_bits(word >> half))


@kernel
def put_children(wide_words: Words, wide_row: U64, node: np.uint64, bit: np.uint64) -> None:
    """Set the bit of both children of a node."""
    put_bit(wide_words, wide_row, node << _1, bit)
    put_bit(wide_words, wide_row, (node << _1) | _1, bit)


@kernel
def split_bucket(
    words: Words, row: U64, wide_words: Words, wide_row: U64, bucket: np.uint64, split: np.uint64
) -> None:
    """Write both children of a bucket; bit j of `split` says to which one slot j goes."""
    seed = read_seed(words, row, bucket)
    for side in range(2):
        child = (bucket << _1) | np.uint64(side)
        prints = _0
        for j in range(SLOTS):
            slot = np.uint64(j)
            value = _0
            if (split >> slot) & _1 == np.uint64(side):
                value = read_value(words, row, bucket, slot)
            if value != _0:
                prints |= read_print(words, row, bucket, slot) << print_shift(words, slot)
            put_value(wide_words, wide_row, child, slot, value)
        put_seed_and_prints(wide_words, wide_row, child, seed, prints)
