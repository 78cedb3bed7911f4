"""Python's dict: what a directory in the router's own process would be."""

import sys
from typing import Final

import numpy as np
from numpy.typing import NDArray


class HashMap:
    """A dict of ints, called with arrays as the others are; the conversion is part of its cost."""

    name = "Python dict"

    def __init__(self) -> None:
        self.table: Final[dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self.table)

    def put(self, keys: NDArray[np.uint64], values: NDArray[np.uint32]) -> None:
        """Insert or overwrite."""
        self.table.update(zip(keys.tolist(), values.tolist(), strict=True))

    def remove(self, keys: NDArray[np.uint64]) -> None:
        """Take keys out."""
        for key in keys.tolist():
            self.table.pop(key, None)

    def get(self, keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Values, 0 for unknown keys."""
        get = self.table.get
        return np.array([get(key, 0) for key in keys.tolist()], np.uint32)

    @property
    def view_bits_per_entry(self) -> float:
        """Bits of the dict and of its keys and values; small values are shared and counted too."""
        if not self.table:
            return 0.0
        key, value = next(iter(self.table.items()))
        return 8 * (sys.getsizeof(self.table) / len(self.table) + sys.getsizeof(key) + sys.getsizeof(value))
