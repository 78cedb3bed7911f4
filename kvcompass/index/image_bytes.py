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

from kvcompass.errors import ProtocolError
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
    digest_words,
    start_digest,
)
from kvcompass.plan.sections import TABLE_MAX

_MAGIC: Final = 0x4455
_HEADER: Final = struct.Struct("<HHI")
_TABLE: Final = struct.Struct("<QIII")


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
    row[SALT] = salt
    row[TABLE] = table
    start_digest(row)
    return row


def aligned_words(size: int, layout: Layout) -> Words:
    """`size` zeroed words that start on a 64-byte boundary, so that a line is one cache line."""
    words: Words = np.zeros(size + layout.line_words, layout.dtype)
    skip = (-words.ctypes.data % LINE_BYTES) // layout.dtype.itemsize
    return words[skip : skip + size]


def encode_images(images: Sequence[Image]) -> bytes:
    """The snapshot of a shard whose tables (one at least) are `images`, in order of table id."""
    width = images[0].words.itemsize
    parts = [_HEADER.pack(_MAGIC, width, len(images))]
    for image in images:
        row = image.row
        parts.append(_TABLE.pack(*(int(row[column]) for column in (SALT, BUCKETS, NODES_A, NODES_B))))
        lines = image.words.reshape(-1, LINE_BYTES // width)
        used = lines.any(axis=1)
        parts.append(np.packbits(used).tobytes())
        parts.append(lines[used].astype(f"<u{width}", copy=False).tobytes())
    return b"".join(parts)


def decode_images(data: bytes, layout: Layout) -> tuple[Image, ...]:
    """The tables of a snapshot, digests recomputed. Raises ProtocolError on anything but a whole one."""
    if len(data) < _HEADER.size:
        raise _malformed("shorter than its header")
    magic, width, count = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise _malformed("unknown magic number")
    if width != layout.dtype.itemsize:
        raise _malformed(f"words of {width} bytes, {layout.dtype.itemsize} expected")
    if not 0 < count <= TABLE_MAX + 1:
        raise _malformed(f"{count} tables")
    at, images = _HEADER.size, []
    for table in range(count):
        if len(data) - at < _TABLE.size:
            raise _malformed(f"table {table} is cut off")
        salt, buckets, nodes_a, nodes_b = _TABLE.unpack_from(data, at)
        at += _TABLE.size
        size = TableSize(buckets, nodes_a, nodes_b, layout)
        if not size.is_addressable:
            raise _malformed(f"table {table} has an impossible size")
        line_count = size.words // layout.line_words
        bitmap = -(-line_count // 8)
        if len(data) - at < bitmap:
            raise _malformed(f"table {table} is cut off")
        used = np.unpackbits(np.frombuffer(data, np.uint8, bitmap, at), count=line_count).astype(bool)
        at += bitmap
        body = int(used.sum()) * layout.line_words
        if len(data) - at < width * body:
            raise _malformed(f"table {table} is cut off")
        image = new_image(size, table, salt)
        lines = np.frombuffer(data, f"<u{width}", body, at).reshape(-1, layout.line_words)
        image.words.reshape(-1, layout.line_words)[used] = lines
        at += width * body
        digest_words(image.words, image.row, 0, image.words.size)
        images.append(image)
    if at != len(data):
        raise _malformed(f"{len(data) - at} bytes follow its last table")
    return tuple(images)


def digest_of(images: Sequence[Image]) -> int:
    """Digest of a shard: xor over its tables."""
    digest = 0
    for image in images:
        digest ^= int(image.row[DIGEST])
    return digest


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(f"malformed snapshot: {what}; ask the unit for another", field="snapshot")
