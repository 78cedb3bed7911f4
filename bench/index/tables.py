"""Keys, and tables to fill with them."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.index import IndexShape, ShardTables
from kvcompass.index.shape import table_size

BATCH = 256
"""Keys an edit: what a unit does at a time."""


def random_keys(count: int, seed: int) -> NDArray[np.uint64]:
    """63-bit keys, uint64[count]; two are equal once in 1e5 runs of 1e7."""
    return np.random.default_rng(seed).integers(0, 1 << 63, count, dtype=np.uint64)


def shape_for(
    entries: int, occupancy: float, *, value_bits: int = 32, layout: str = "fingerprints"
) -> IndexShape:
    """One shard of one table that holds `entries` at a true `occupancy`."""
    expected = entries
    shape = IndexShape(1, 1, value_bits, expected, layout)
    slots = table_size(expected, shape.table_layout).slots
    return IndexShape(1, 1, value_bits, max(1, round(expected * entries / occupancy / slots)), layout)


def full_writer(shape: IndexShape, shard: int = 0) -> ShardTables:
    """A writer whose tables do not double before they are full, so that occupancy is what was asked for."""
    return ShardTables(shape, shard, random_seed=1, grow_at=1.0)
