"""A shard's tables as they are at one moment, copied a part at a time, and their snapshot's bytes."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.index.image_bytes import HEADER, MAGIC, TABLE_HEADER, Image
from kvcompass.kernels.arrays import Words
from kvcompass.kernels.image import BUCKETS, DIGEST, LINE_BYTES, NODES_A, NODES_B, SALT

_LINES: Final = 8_192
"""Lines copied in one part: half a megabyte, 0.5-2 ms."""
_TABLE: Final = 128
"""Lines that are copied in the time of what each table costs besides."""


class FrozenShard:
    """A snapshot that is made from copies of the images. Nothing may be edited until they are whole."""

    def __init__(self, images: Sequence[Image]) -> None:
        """`images` (one at least), in order of table id, none of them growing."""
        self.digest: Final = int(np.bitwise_xor.reduce([image.row[DIGEST] for image in images]))
        self._images = images
        self._width = images[0].words.itemsize
        self._lines: list[Words] = [np.empty_like(_as_lines(image)) for image in images]
        self._used: list[NDArray[np.bool_]] = [np.empty(len(lines), np.bool_) for lines in self._lines]
        self._positions: list[NDArray[np.int64]] = []
        """Of each whole table, its lines that are not zero."""
        self._at = (0, 0)
        self._pieces: list[tuple[int, bytes, int]] = []
        """Offset of a table's bytes, its header and bitmap, its number in the shard."""
        self._size = HEADER.size

    @property
    def is_whole(self) -> bool:
        """All is copied; the tables may be edited again."""
        return self._at[0] == len(self._images)

    @property
    def size(self) -> int:
        """Bytes of the snapshot."""
        assert self.is_whole
        return self._size

    def step(self) -> None:
        """Copy the next part, of several tables if they are small."""
        room = _LINES
        while room > 0 and not self.is_whole:
            table, first = self._at
            source = _as_lines(self._images[table])
            end = min(first + room, len(source))
            self._lines[table][first:end] = source[first:end]
            self._used[table][first:end] = self._lines[table][first:end].any(axis=1)
            room -= max(end - first, _TABLE)
            self._at = (table, end)
            if end == len(source):
                self._close(table)
                self._at = (table + 1, 0)

    def read(self, start: int, end: int) -> bytes:
        """Bytes start..end-1 of the snapshot."""
        head = HEADER.pack(MAGIC, self._width, len(self._images))
        parts = [head[start:end]]
        for offset, front, table in self._pieces:
            begin, stop = start - offset, end - offset
            if stop <= 0:
                break
            parts.append(front[max(0, begin) : stop])
            begin, stop = max(0, begin - len(front)), stop - len(front)
            if stop > 0:
                parts.append(self._read_lines(table, begin, stop))
        return b"".join(parts)

    def _read_lines(self, table: int, start: int, end: int) -> bytes:
        """Bytes of the lines that are not zero, one after the other."""
        positions = self._positions[table][start // LINE_BYTES : -(-end // LINE_BYTES)]
        data = self._lines[table][positions].astype(f"<u{self._width}", copy=False).tobytes()
        skip = start % LINE_BYTES
        return data[skip : skip + end - start]

    def _close(self, table: int) -> None:
        row, used = self._images[table].row, self._used[table]
        front = TABLE_HEADER.pack(*(int(row[column]) for column in (SALT, BUCKETS, NODES_A, NODES_B)))
        front += np.packbits(used).tobytes()
        self._positions.append(np.flatnonzero(used))
        self._pieces.append((self._size, front, table))
        self._size += len(front) + LINE_BYTES * int(np.count_nonzero(used))


def _as_lines(image: Image) -> Words:
    lines: Words = image.words.reshape(-1, LINE_BYTES // image.words.itemsize)
    return lines
