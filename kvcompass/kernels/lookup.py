"""Reading the view: plain lookups, and the fused match of one prompt against every worker."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I32, U8, U64, Flags, Int, Words
from kvcompass.kernels.buckets import read_key
from kvcompass.kernels.jit import kernel

_31: Final = np.uint64(31)
_32: Final = np.uint64(32)
_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_3: Final = np.uint64(3)


@kernel
def shard_index(key: np.uint64, shards: Int) -> Int:
    """Shard of a 63-bit key: fastrange on its top 32 bits, as `kvcompass.keys.shard_of`."""
    return np.int64(((key >> _31) * np.uint64(shards)) >> _32)


@kernel
def lookup_keys(words: Words, directory: U64, present: Flags, keys: U64, values: U64) -> None:
    """Fill values[n, tables] with the values of the keys; zero where the key's shard is absent.

    The directory has as many rows for each shard, at least `tables`.
    """
    width = directory.shape[0] // present.size
    tables = values.shape[1]
    for i in range(keys.size):
        shard = shard_index(keys[i], present.size)
        for table in range(tables):
            if present[shard]:
                values[i, table] = read_key(words, directory[shard * width + table], keys[i])
            else:
                values[i, table] = _0


@kernel
def match_keys(
    words: Words,
    directory: U64,
    present: Flags,
    keys: U64,
    rungs: I32,
    queried: Flags,
    guard: I32,
    table_region: I32,
    table_fields: U64,
    field_worker: I32,
    match_tokens: I32,
    tier: U8,
) -> None:
    """Longest contiguous run of set levels of every worker (prefix-consistency filter).

    The directory has as many rows for each shard, at least as many as there are tables here.
    Table t belongs to region table_region[t]; table_fields[t] has bit 2s set for each slot s in use, and
    field_worker[t, s] is the worker there. keys[l] is the key of rungs[l]; levels beyond keys.size have none.
    For region r the levels with queried[r, l] are claims, and guard[r] (-1: none) is read as a filter that is
    never credited. Levels of absent shards are skipped. match_tokens and tier must be zero on entry.
    """
    levels = min(keys.size, rungs.size)
    width = directory.shape[0] // present.size
    for table in range(table_region.size):
        region = np.int64(table_region[table])
        alive = table_fields[table]
        credited = np.int64(0)
        credited_value = _0
        for level in range(levels):
            guards = level == np.int64(guard[region])
            if alive == _0 or not (queried[region, level] or guards):
                continue
            shard = shard_index(keys[level], present.size)
            if not present[shard]:
                continue
            value = read_key(words, directory[shard * width + table], keys[level])
            ended = alive & ~(value | (value >> _1))
            if ended != _0:
                _credit(ended, credited, credited_value, field_worker[table], match_tokens, tier)
                alive ^= ended
            if not guards:
                credited = np.int64(rungs[level])
                credited_value = value
        _credit(alive, credited, credited_value, field_worker[table], match_tokens, tier)


@kernel
def _credit(
    fields: np.uint64, tokens: Int, value: np.uint64, worker: I32, match_tokens: I32, tier: U8
) -> None:
    """Credit the workers of some fields with the last level at which they were all set."""
    if tokens == 0:
        return
    for slot in range(worker.size):
        shift = np.uint64(2 * slot)
        if (fields >> shift) & _1 == _1:
            match_tokens[worker[slot]] = np.int32(tokens)
            tier[worker[slot]] = np.uint8((value >> shift) & _3)
