"""The one array that holds every table of a view, so that a kernel reads them all by offset."""

from kvcompass.index.image_bytes import aligned_words
from kvcompass.index.layout import Layout
from kvcompass.index.shape import size_of
from kvcompass.kernels.arrays import U64, Words
from kvcompass.kernels.image import BASE


class Arena:
    """Room for images, taken from the front. Room that a table leaves is lost until all is laid out anew.

    That happens when room runs out, and leaves three times as much free as is taken: seldom. Free room is
    zero, and costs addresses and no memory.
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
        if self._end + size <= self.words.size:
            return
        old, sizes = self.words, [self.image_words(row) for row in kept]
        self.words = aligned_words(4 * (sum(sizes) + size), self._layout)
        self._end = 0
        for row, words in zip(kept, sizes, strict=True):
            begin, base = int(row[BASE]), self.take(words)
            self.words[base : base + words] = old[begin : begin + words]
            row[BASE] = base

    def image_words(self, row: U64) -> int:
        """Return the words of the image that a row describes."""
        return size_of(row, self._layout).words
