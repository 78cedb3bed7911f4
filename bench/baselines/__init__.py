"""What the index is compared with, in the same run: the simplest fast table, and Python's own."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bench.baselines.hash_map import HashMap
from bench.baselines.open_addressing import OpenAddressing

__all__ = ["Baseline", "HashMap", "OpenAddressing"]


class Baseline(Protocol):
    """A map from 63-bit keys to 32-bit values, in batches."""

    name: str

    def __len__(self) -> int: ...

    def put(self, keys: NDArray[np.uint64], values: NDArray[np.uint32]) -> None:
        """Insert keys, or overwrite the values of those that are there."""

    def remove(self, keys: NDArray[np.uint64]) -> None:
        """Take keys out; those that are not there are skipped."""

    def get(self, keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
        """Values, uint32[n]; 0 for a key that is not there."""

    @property
    def view_bits_per_entry(self) -> float:
        """Memory of what answers lookups, over the entries it holds."""
