"""Patch groups: what a unit sends so that every view stays equal to its tables.

The payload is little-endian uint32 words: consecutive groups, in sequence order. A group holds all changes of
one edit and is applied whole or not at all: in the middle of an Othello flip other keys answer wrongly.

    group   = length in words (this one included), number of records, records...
    record  = kind | table << 8, subject, ...

    kind            subject              then
    1 VALUE         4 * bucket + slot    value
    2 BUCKET        bucket               4 values, seed (0..255), fingerprints
    3 NODES         n                    n words: node << 1 | bit
    4 CLEAR_WORKER  worker slot          -
    5 GROW          reserved: a receiver of this version refuses it

A value is one word, or two of 64 bits, low half first. The four fingerprints, slot 0 lowest, are one word of
8 bits each, two words of 14 bits each beside 64-bit values, or absent (`kvcompass.kernels.buckets`).

Everything is absolute (a value, a bucket's whole image, a bit, never a difference), so a replayed suffix
converges; but an *older* group would overwrite a newer one, hence the sequence guard in `IndexView.apply`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patches:
    """What an edit changed, for the subscribers of the shard."""

    payload: bytes
    groups: int
    """Sequence numbers it takes. A rebuild takes one although it has no payload."""
    rebuilt: bool = False
    """A table was built anew: the payload is empty and every subscriber needs a snapshot."""


@dataclass(frozen=True, slots=True)
class ApplyResult:
    """What a view did with a run of patch groups."""

    applied: int
    refused_old: int
    """Groups at or below the applied sequence, skipped."""
    gap: bool
    """The run starts past the next sequence, or the shard has no snapshot: nothing was applied."""
