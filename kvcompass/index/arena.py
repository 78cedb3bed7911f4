"""The one array that holds every table of a view, so that a kernel reads them all by offset."""

import mmap
from bisect import insort
from typing import Final

import numpy as np

from kvcompass.index.layout import Layout
from kvcompass.index.shape import size_of
from kvcompass.kernels.arrays import U64, Words
from kvcompass.kernels.image import BASE

_ADDRESSES: Final = 1 << 36
"""Bytes of addresses that are asked for: many times what a view takes, and they cost nothing."""
_LEAST: Final = 4
"""Words laid out for each word in use, at least."""
_LARGE: Final = 4 << 20
"""Bytes taken from which on the system is to use large pages."""
_GIVEN_BACK: Final = 16 << 20
"""Bytes given back to the system in one part: 1 ms."""
_NORESERVE: Final = 0x4000
"""Linux's MAP_NORESERVE, which the standard library does not name in all versions."""


class Arena:
    """Room for images. What a table leaves is given back to the system part by part, and may then be taken.

    Free room is zero, and takes addresses and no memory. So nothing is ever copied, unless addresses run
    out: where the system limits them (`ulimit -v`, strict overcommitting), all is then laid out anew.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._words_of_page = mmap.PAGESIZE // layout.dtype.itemsize
        self._lay_out(1)

    def _lay_out(self, used: int) -> None:
        """New, empty room for some times `used` words. Raises MemoryError when there is none."""
        least = _LEAST * used * self._layout.dtype.itemsize
        size = max(_ADDRESSES, least)
        while True:
            try:
                self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
                break
            except (OSError, OverflowError):
                if size <= least:
                    raise MemoryError(f"no addresses for {least} bytes") from None
                size = max(size // 2, least)
        self.words: Words = np.frombuffer(self._map, self._layout.dtype)
        self._end = 0
        self._free: list[tuple[int, int]] = []
        """Begin and end of free room before `_end`, in order."""
        self._left: list[tuple[int, int]] = []
        """The same of room that tables have left and that is not given back yet."""
        self._is_large = False

    @property
    def used_bytes(self) -> int:
        """Bytes of memory taken, with what is not given back yet."""
        free = sum(end - begin for begin, end in self._free)
        return self.words.itemsize * (self._end - free)

    def take(self, size: int) -> int:
        """Return the base of `size` free words; there must be room for them (`make_room`)."""
        for number, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                self._free[number : number + 1] = [(begin + size, end)] if end - begin > size else []
                return begin
        base = self._end
        assert base + size <= self.words.size
        self._end += size
        if not self._is_large and self._end * self.words.itemsize > _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
            self._is_large = True
        return base

    def leave(self, row: U64) -> None:
        """The image of a row is not read any more."""
        begin = int(row[BASE])
        self._left.append((begin, begin + self.image_words(row)))

    def give_back(self) -> None:
        """Give a part of what was left back to the system: it is free then, and zero."""
        room = _GIVEN_BACK // self.words.itemsize
        while self._left and room > 0:
            begin, end = self._left.pop()
            stop = min(end, begin + room)
            if stop < end:
                self._left.append((stop, end))
            self._clear(begin, stop)
            self._add_free(begin, stop)
            room -= stop - begin

    def _clear(self, begin: int, end: int) -> None:
        """Make words zero: whole pages by giving them back."""
        page = self._words_of_page
        first, last = -(-begin // page) * page, end // page * page
        if first < last:
            width = self.words.itemsize
            self._map.madvise(mmap.MADV_DONTNEED, first * width, (last - first) * width)
            self.words[begin:first] = 0
            self.words[last:end] = 0
        else:
            self.words[begin:end] = 0

    def _add_free(self, begin: int, end: int) -> None:
        insort(self._free, (begin, end))
        joined: list[tuple[int, int]] = []
        for begin, end in self._free:
            if joined and joined[-1][1] == begin:
                joined[-1] = (joined[-1][0], end)
            else:
                joined.append((begin, end))
        if joined[-1][1] == self._end:
            self._end = joined.pop()[0]
        self._free = joined

    def has_room(self, size: int) -> bool:
        """Whether `size` words can be taken as it is."""
        return self._end + size <= self.words.size or any(end - begin >= size for begin, end in self._free)

    def make_room(self, size: int, kept: list[U64]) -> None:
        """See that `size` words can be taken. If all must move for it, `kept` rows are given new bases.

        Args:
            size: Words.
            kept: Rows of all images that are in use, changed in place.
        """
        if self.has_room(size):
            return
        old, sizes = self.words, [self.image_words(row) for row in kept]
        self._lay_out(sum(sizes) + size)
        for row, words in zip(kept, sizes, strict=True):
            begin, base = int(row[BASE]), self.take(words)
            self.words[base : base + words] = old[begin : begin + words]
            row[BASE] = base

    def image_words(self, row: U64) -> int:
        """Return the words of the image that a row describes."""
        return size_of(row, self._layout).words
