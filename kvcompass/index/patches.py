"""Patch groups: what a unit sends so that every view stays equal to its tables.

The payload is little-endian uint32 words: consecutive groups, in sequence order. A group holds all changes of
one edit and is applied whole or not at all: in the middle of an Othello flip other keys answer wrongly.

    group   = length in words (this one included), number of records, records...
    record  = kind | table << 8, subject, ...

    kind            subject              then
    1 VALUE         4 * bucket + slot    value
    2 BUCKET        bucket               4 values, seed (0..255), fingerprints
    3 NODES         n                    n words: node << 1 | bit
    4 CLEAR_WORKER  worker slot          first bucket, buckets
    5 GROW          0 begin, 1 swap      -
    6 SPREAD        first word           words of Othello bits
    7 SPLIT         first bucket         buckets, then their split bits: four a bucket, eight buckets a word

A table doubles while it is read. GROW begin lays an empty table of twice the size beside it; SPREAD and SPLIT
copy the Othello bits and the buckets of the first one into it (`kvcompass.kernels.split`), a part a group; a
group that changes a bucket that is split already splits it again, and NODES sets the bits of both. GROW swap,
once all is copied, lets the second take the place of the first. GROW records are alone in their groups.

A value is one word, or two of 64 bits, low half first. The four fingerprints, slot 0 lowest, are one word of
8 bits each, two words of 14 bits each beside 64-bit values, or absent (`kvcompass.kernels.buckets`).

Everything is absolute (a value, a bucket's whole image, a bit, never a difference), so a replayed suffix
converges; but an *older* group would overwrite a newer one, hence the sequence guard in `IndexView.apply`.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_WORD: Final = np.dtype("<u4")


class Patches(NamedTuple):
    """What an edit changed, for the subscribers of the shard."""

    payload: bytes
    groups: int
    """Sequence numbers it takes. A rebuild takes one although it has no payload."""
    rebuilt: bool = False
    """A table was built anew: the payload is empty and every subscriber needs a snapshot."""
    work: int = 0
    """What applying it costs a view, beyond its groups, in groups."""


class PatchRun:
    """Patch groups of several kernel calls, being collected."""

    __slots__ = ("_groups", "_parts", "_rebuilt", "_work")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._groups = 0
        self._work = 0
        self._rebuilt = False

    def add(self, words: NDArray[np.uint32], groups: int, work: int = 0) -> None:
        """Append groups as the kernels wrote them."""
        self._parts.append(words.astype(_WORD, copy=False).tobytes())
        self._groups += groups
        self._work += work

    def restart(self) -> None:
        """Note that a table was built anew: no patch tells what happened before or after."""
        self._rebuilt = True

    def patches(self) -> Patches:
        """What was collected."""
        if self._rebuilt:
            return Patches(b"", 1, rebuilt=True)
        return Patches(b"".join(self._parts), self._groups, work=self._work)


class ApplyResult(NamedTuple):
    """What a view did with a run of patch groups. A tuple, because that is made sooner than a dataclass."""

    applied: int
    refused_old: int
    """Groups at or below the applied sequence, skipped."""
    gap: bool
    """The run starts past the next sequence, or the shard has no snapshot: nothing was applied."""
