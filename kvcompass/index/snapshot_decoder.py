"""Decoding a snapshot as it arrives, into room of the arena that nobody reads yet."""

from collections.abc import Callable, Generator
from typing import Final

import numpy as np

from kvcompass.errors import ProtocolError
from kvcompass.index.arena import Arena
from kvcompass.index.image_bytes import HEADER, MAGIC, TABLE_HEADER, new_row
from kvcompass.index.shape import IndexShape, TableSize
from kvcompass.kernels.arrays import U64
from kvcompass.kernels.image import BASE, DIGEST, LINE_BYTES
from kvcompass.kernels.lines import write_lines
from kvcompass.plan.sections import TABLE_MAX

_NODES_A_SLOT: Final = 11
"""The smallest table has a few nodes less than this for each slot, all others far fewer."""


class SnapshotDecoder:
    """One snapshot under way. Every call costs what it is given, about 1.5 us a kilobyte."""

    def __init__(self, arena: Arena, shape: IndexShape, make_room: Callable[[int], None]) -> None:
        """`shape`: of the view. `make_room` sees that the arena has so many free words, and may give `rows`
        new bases for it."""
        self.rows: list[U64] = []
        """Rows of the tables that have begun to arrive; their words are in the arena."""
        self._arena = arena
        self._layout = shape.table_layout
        self._buckets_left = shape.tables * shape.buckets_most
        self._make_room = make_room
        self._rest = b""
        self._reader = self._read()
        self._needed = next(self._reader)
        self._whole = False

    def add(self, data: bytes) -> None:
        """Take the next bytes. Raises ProtocolError on anything that is no snapshot of this layout."""
        data = self._rest + data
        at = 0
        while not self._whole and len(data) - at >= self._needed:
            size = self._needed
            if self._in_lines:
                size = min((len(data) - at) // LINE_BYTES, self._lines_left) * LINE_BYTES
            part, at = data[at : at + size], at + size
            try:
                self._needed = self._reader.send(part)
            except StopIteration:
                self._whole = True
        self._rest = data[at:]
        if self._whole and self._rest:
            raise _malformed(f"{len(self._rest)} bytes follow its last table")

    def end(self) -> int:
        """Return the snapshot's digest. Raises ProtocolError if some of it is missing."""
        if not self._whole:
            raise _malformed(f"it is cut off in table {max(0, len(self.rows) - 1)}")
        digest = 0
        for row in self.rows:
            digest ^= int(row[DIGEST])
        return digest

    _in_lines = False
    _lines_left = 0

    def _read(self) -> Generator[int, bytes, None]:
        """Yields how many bytes it needs, and is sent them; or, in lines, any number of whole ones."""
        magic, width, count = HEADER.unpack((yield HEADER.size))
        if magic != MAGIC:
            raise _malformed("unknown magic number")
        if width != self._layout.dtype.itemsize:
            raise _malformed(f"words of {width} bytes, {self._layout.dtype.itemsize} expected")
        if not 0 < count <= TABLE_MAX + 1:
            raise _malformed(f"{count} tables")
        for table in range(count):
            salt, buckets, nodes_a, nodes_b = TABLE_HEADER.unpack((yield TABLE_HEADER.size))
            size = TableSize(buckets, nodes_a, nodes_b, self._layout)
            if not size.is_addressable or size.nodes > _NODES_A_SLOT * size.slots:
                raise _malformed(f"table {table} has an impossible size")
            self._buckets_left -= buckets
            if self._buckets_left < 0:
                raise _malformed(
                    f"table {table} of {size.slots} slots is more than the plan's workers can fill"
                )
            line_count = size.words // self._layout.line_words
            bitmap = yield -(-line_count // 8)
            used = np.flatnonzero(np.unpackbits(np.frombuffer(bitmap, np.uint8), count=line_count))
            try:
                self._make_room(size.words)
            except MemoryError:
                raise _malformed(f"no memory for table {table} of {size.slots} slots") from None
            row = new_row(size, table, salt)
            row[BASE] = self._arena.take(size.words)
            self.rows.append(row)
            self._in_lines, done = True, 0
            while done < used.size:
                self._lines_left = used.size - done
                part = yield LINE_BYTES
                lines = np.frombuffer(part, f"<u{width}").reshape(-1, self._layout.line_words)
                positions = used[done : done + len(lines)]
                write_lines(self._arena.words, row, lines.astype(self._layout.dtype), positions)
                done += len(lines)
            self._in_lines = False


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(f"malformed snapshot: {what}; ask the unit for another", field="snapshot")
