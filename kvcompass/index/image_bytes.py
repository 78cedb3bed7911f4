"""A snapshot's bytes: the images of all tables of one shard.

Little-endian: magic, bytes a word (uint16 each), number of tables (uint32); then for each table its salt
(uint64), buckets, nodes in A, nodes in B (uint32 each), one bit for every 64-byte line that is not all zero
(padded to a byte), and those lines. So a nearly empty table is a small snapshot. The digest travels beside
the bytes, not in them.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from kvcompass.index.layout import Layout
from kvcompass.index.shape import TableSize
from kvcompass.kernels.arrays import U64, Words
from kvcompass.kernels.image import (
    BUCKETS,
    DIGEST,
    LINE_BYTES,
    NODES_A,
    NODES_B,
    ROW,
    SALT,
    TABLE,
    VALUES,
    start_digest,
)

MAGIC: Final = 0x4455
HEADER: Final = struct.Struct("<HHI")
TABLE_HEADER: Final = struct.Struct("<QIII")


@dataclass(frozen=True, slots=True)
class Image:
    """One table of a shard: its row (BASE 0) and the words it describes."""

    row: U64
    words: Words


def new_image(size: TableSize, table: int, salt: int) -> Image:
    """An empty table."""
    return Image(row=new_row(size, table, salt), words=aligned_words(size.words, size.layout))


def new_row(size: TableSize, table: int, salt: int) -> U64:
    """The row of an empty table. Its digest covers size and salt: two empty tables differ when those do."""
    row = np.zeros(ROW, np.uint64)
    row[VALUES] = size.value_offset
    row[BUCKETS] = size.buckets
    row[NODES_A] = size.nodes_a
    row[NODES_B] = size.nodes_b
    row[SALT] = salt | 1
    row[TABLE] = table
    start_digest(row)
    return row


def aligned_words(size: int, layout: Layout) -> Words:
    """`size` zeroed words that start on a 64-byte boundary, so that a line is one cache line."""
    words: Words = np.zeros(size + layout.line_words, layout.dtype)
    skip = (-words.ctypes.data % LINE_BYTES) // layout.dtype.itemsize
    return words[skip : skip + size]


def digest_of(images: Sequence[Image]) -> int:
    """Digest of a shard: xor over its tables."""
    digest = 0
    for image in images:
        digest ^= int(image.row[DIGEST])
    return digest
