"""Open addressing: linear probing over words of a 32-bit tag and a 32-bit value.

A view needs nothing but the words, as the index's needs no keys: 64 bits a slot, 75 an entry at 85 %, and one
lookup of a strange key in about 2e8 finds its tag somewhere in its run. Updates are one word. A writer keeps
the whole keys beside them, for removal: the entries behind a hole move up to where they belong, so that there
are no tombstones and a table never ages. Runs lie in one cache line, seldom two.
"""

from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

LOAD: Final = 0.85
"""Entries over slots at the expected number of entries; lookups of strange keys read 22 words there."""

PROBES: Final = 64
"""Keys looked up at once."""

_LOW: Final = np.uint64(0xFFFFFFFF)
_32: Final = np.uint64(32)
_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_kernel = numba.njit(cache=True, nogil=True, error_model="numpy", boundscheck=False, _nrt=False)


class OpenAddressing:
    """A table of a fixed number of slots."""

    name = "open addressing"

    def __init__(self, expected_entries: int) -> None:
        slots = int(expected_entries / LOAD) + 2
        self.words: Final = np.zeros(slots, np.uint64)
        """uint64[slots]: tag << 32 | value; 0 is a free slot. All that a view holds."""
        self.keys: Final = np.zeros(slots, np.uint64)
        """uint64[slots]: whole keys by slot, the writer's."""
        self._probes = np.zeros((PROBES, 3), np.uint64)
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    def put(self, keys: NDArray[np.uint64], values: NDArray[np.uint32]) -> None:
        """Insert or overwrite. Raises ValueError when the table could fill up."""
        if self._entries + keys.size >= self.words.size:
            raise ValueError(
                f"{self.words.size} slots are too few for {self._entries} and {keys.size} more keys"
            )
        self._entries += _put(self.words, self.keys, keys, values)

    def remove(self, keys: NDArray[np.uint64]) -> None:
        """Take keys out and close the holes."""
        self._entries -= _remove(self.words, self.keys, keys)

    def get(self, keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Values as a view reads them, by tags alone."""
        values = np.zeros(keys.size, np.uint32)
        _get(self.words, self._probes, keys, values)
        return values

    @property
    def view_bits_per_entry(self) -> float:
        """Bits of the words over the entries."""
        return 8 * self.words.nbytes / max(1, self._entries)


@_kernel
def _mix(x):
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@_kernel
def _home(mixed, slots):
    """Slot where a key would like to be: fastrange of the low half."""
    return ((mixed & _LOW) * slots) >> _32


@_kernel
def _tag(mixed):
    """The high half, which says nothing of the slot; never 0."""
    return max(mixed >> _32, _1)


@_kernel
def _put(words, kept, keys, values):
    slots, added = np.uint64(words.size), 0
    for i in range(keys.size):
        mixed = _mix(keys[i])
        word = _tag(mixed) << _32 | np.uint64(values[i])
        at = _home(mixed, slots)
        while words[at] != _0 and kept[at] != keys[i]:
            at = at + _1 if at + _1 < slots else _0
        if words[at] == _0:
            kept[at] = keys[i]
            added += 1
        words[at] = word
    return added


@_kernel
def _remove(words, kept, keys):
    slots, removed = np.uint64(words.size), 0
    for i in range(keys.size):
        hole = _home(_mix(keys[i]), slots)
        while words[hole] != _0 and kept[hole] != keys[i]:
            hole = hole + _1 if hole + _1 < slots else _0
        if words[hole] == _0:
            continue
        removed += 1
        at = hole
        while True:
            at = at + _1 if at + _1 < slots else _0
            if words[at] == _0:
                break
            home = _home(_mix(kept[at]), slots)
            from_home = at - home if at >= home else at + slots - home
            from_hole = at - hole if at >= hole else at + slots - hole
            if from_home >= from_hole:
                words[hole] = words[at]
                kept[hole] = kept[at]
                hole = at
        words[hole] = _0
    return removed


@_kernel
def _get(words, probes, keys, values):
    """Read the first word of many keys before the runs of any, so that their cache misses overlap."""
    slots = np.uint64(words.size)
    for begin in range(0, keys.size, PROBES):
        count = min(PROBES, keys.size - begin)
        for i in range(count):
            mixed = _mix(keys[begin + i])
            probes[i, 0] = _tag(mixed)
            probes[i, 1] = _home(mixed, slots)
            probes[i, 2] = words[probes[i, 1]]
        for i in range(count):
            at, word = probes[i, 1], probes[i, 2]
            while word != _0 and word >> _32 != probes[i, 0]:
                at = at + _1 if at + _1 < slots else _0
                word = words[at]
            values[begin + i] = np.uint32(word & _LOW)
