"""What a table holds once one worker's tiers of many keys have been set, for building it anew."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.kernels.arrays import U64
from kvcompass.kernels.buckets import copy_values
from kvcompass.kernels.state import Table


def all_values(table: Table) -> U64:
    """Values by position (4 * bucket + slot), a copy."""
    values = np.empty(table.slot_entry.size, np.uint64)
    copy_values(table.words, table.row, values)
    return values


def all_keys(table: Table) -> tuple[U64, U64]:
    """Keys and their values, in no particular order."""
    held = table.slot_entry != 0
    return table.slot_key[held], all_values(table)[held]


def merged_keys(table: Table, keys: U64, slot: int, tiers: NDArray[np.uint8]) -> tuple[U64, U64]:
    """Keys and values of a table in which the worker in `slot` has been given `tiers` at `keys`.

    Of two tiers for a key the later one counts; what nobody holds any more is left out.
    """
    shift, field = np.uint64(2 * slot), np.uint64(3 << 2 * slot)
    distinct = keys
    if not (keys[1:] > keys[:-1]).all():
        distinct, newest = np.unique(keys[::-1], return_index=True)
        tiers = tiers[::-1][newest]
    values = tiers.astype(np.uint64) << shift
    old_keys, old_values = all_keys(table)
    at = np.searchsorted(distinct, old_keys) % max(1, distinct.size)
    both = distinct[at] == old_keys if distinct.size else np.zeros(at.size, np.bool_)
    values[at[both]] |= old_values[both] & ~field
    keys = np.concatenate([distinct, old_keys[~both]])
    values = np.concatenate([values, old_values[~both]])
    kept = values != 0
    return keys[kept], values[kept]
