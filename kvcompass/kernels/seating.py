"""Seating up to four keys in a bucket: the seed that keeps them apart, and all that follows from it.

The keys are in the first rows of `Scratch.keys`, their entries in `Scratch.entries`.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Int
from kvcompass.kernels.buckets import print_shift, put_seed_and_prints, put_value, read_seed
from kvcompass.kernels.hashing import SEEDS, slot_of
from kvcompass.kernels.image import SLOTS
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.state import Scratch, Table

_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_BYTE: Final = np.uint64(255)
_NO_SEED: Final = np.uint64(SEEDS)


@kernel
def seat_keys(table: Table, scratch: Scratch, bucket: Int, held: Int) -> bool:
    """Write a bucket that holds the first `held` of the keys and no other.

    False, with nothing changed, when no seed keeps them apart: one full bucket in 1e11.
    """
    group, index = scratch.keys, np.uint64(bucket)
    seed = _seed_of(group, held, read_seed(table.words, table.row, index))
    if seed == _NO_SEED:
        return False
    prints = _0
    for j in range(SLOTS):
        at, slot, value = SLOTS * bucket + j, np.uint64(j), _0
        table.slot_entry[at] = 0
        for i in range(held):
            if slot_of(group[i, 1], seed) == slot:
                table.slot_key[at] = group[i, 0]
                table.slot_entry[at] = np.uint32(scratch.entries[i])
                prints |= group[i, 2] << print_shift(table.words, slot)
                value = group[i, 3]
        put_value(table.words, table.row, index, slot, value)
    put_seed_and_prints(table.words, table.row, index, seed, prints)
    return True


@kernel
def _seed_of(group: U64, held: Int, first: np.uint64) -> np.uint64:
    """The first seed, from `first` on and around, that keeps the keys apart; else _NO_SEED.

    All four slots are looked at without a branch between them: bits are apart when their sum is what they are
    together. A key that is not there has a bit of its own.
    """
    for tried in range(SEEDS):
        seed = (first + np.uint64(tried)) & _BYTE
        together, total = _0, _0
        for j in range(SLOTS):
            place = slot_of(group[j, 1], seed) if j < held else np.uint64(SLOTS + j)
            together |= _1 << place
            total += _1 << place
        if together == total:
            return seed
    return _NO_SEED
