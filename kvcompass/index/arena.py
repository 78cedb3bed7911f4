"""The one array that holds every table of a view, so that a kernel reads them all by offset."""

from typing import Final

from kvcompass.index.image_bytes import aligned_words
from kvcompass.index.layout import Layout
from kvcompass.index.shape import size_of
from kvcompass.kernels.arrays import U64, Words
from kvcompass.kernels.image import BASE

_TAKEN_MOST: Final = 4
"""Words taken, lost ones with them, for each word in use."""
_ROOM: Final = 32
"""Words laid out for each word in use: a table that doubles four times takes 31 times its first size."""


class Arena:
    """Room for images, taken from the front. Room that a table leaves is lost until all is laid out anew.

    That happens when room runs out or three quarters of what was taken are lost: seldom. It leaves free room
    for a table to double four times. Free room is zero, and costs addresses and no memory.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self.words: Words = aligned_words(0, layout)
        self._end = 0

    @property
    def used_bytes(self) -> int:
        """Bytes taken, with what tables have left behind."""
        return self.words.itemsize * self._end

    def take(self, size: int) -> int:
        """Return the base of `size` free words; there must be room for them."""
        base = self._end
        assert base + size <= self.words.size
        self._end += size
        return base

    def make_room(self, size: int, kept: list[U64]) -> None:
        """See that `size` words can be taken. If all must move for it, `kept` rows are given new bases.

        Args:
            size: Words.
            kept: Rows of all images that are in use, changed in place.
        """
        old, sizes = self.words, [self.image_words(row) for row in kept]
        used = sum(sizes) + size
        if self._end + size <= min(self.words.size, _TAKEN_MOST * used):
            return
        try:
            self.words = aligned_words(_ROOM * used, self._layout)
        except MemoryError:  # so many addresses are more than the system promises
            self.words = aligned_words(_TAKEN_MOST * used, self._layout)
        self._end = 0
        for row, words in zip(kept, sizes, strict=True):
            begin, base = int(row[BASE]), self.take(words)
            self.words[base : base + words] = old[begin : begin + words]
            row[BASE] = base

    def image_words(self, row: U64) -> int:
        """Return the words of the image that a row describes."""
        return size_of(row, self._layout).words
