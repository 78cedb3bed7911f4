"""The layouts a table may have, by the plan's `index.value_bits` and `index.layout`."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kvcompass.errors import KVCompassError
from kvcompass.kernels.image import LINE_BYTES, LINES, PAPER, SLOTS, WIDE


@dataclass(frozen=True, slots=True)
class Layout:
    """One layout: what `kvcompass.kernels.buckets` compiles for, and how many words that takes."""

    name: str
    """`index.layout` of a plan."""
    value_bits: int
    """`index.value_bits` of a plan."""
    dtype: "np.dtype[Any]"
    """Of the words; tells the layouts apart."""
    unit_buckets: int
    """Buckets that lie together."""
    unit_bytes: int
    """Bytes they take."""

    @property
    def line_words(self) -> int:
        """Words of a 64-byte line."""
        return LINE_BYTES // self.dtype.itemsize

    def othello_words(self, nodes: int) -> int:
        """Words of so many Othello bits, whole lines."""
        return self._lines(-(-nodes // 8)) * self.line_words

    def bucket_words(self, buckets: int) -> int:
        """Words of so many buckets, whole lines."""
        return self._lines(-(-buckets // self.unit_buckets) * self.unit_bytes) * self.line_words

    @staticmethod
    def _lines(size: int) -> int:
        return -(-size // LINE_BYTES)


LAYOUTS: Final = (
    Layout("fingerprints", 32, LINES, 3, LINE_BYTES),
    Layout("fingerprints", 64, WIDE, 1, SLOTS * 8 + 8),
    Layout("paper", 32, PAPER, 2, 2 * (SLOTS * 4 + 1)),
)
"""All there are; the first is the default."""


def table_layout(name: str, value_bits: int) -> Layout:
    """The layout of a name and a width.

    Raises:
        KVCompassError: There is none; the message names those that are.
    """
    for layout in LAYOUTS:
        if (layout.name, layout.value_bits) == (name, value_bits):
            return layout
    known = ", ".join(f"{layout.name} with {layout.value_bits}" for layout in LAYOUTS)
    raise KVCompassError(
        f"there is no layout {name!r} with {value_bits}-bit values; choose among {known}",
        field="index.layout",
    )
