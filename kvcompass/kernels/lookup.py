"""Reading the view: plain lookups, and the fused match of one prompt against every worker."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import I32, U8, U32, U64, Flags, Int
from kvcompass.kernels.image import read_key
from kvcompass.kernels.jit import kernel

_31: Final = np.uint64(31)
_32: Final = np.uint64(32)
_0: Final = np.uint64(0)
_1: Final = np.uint64(1)
_3: Final = np.uint64(3)
_FIELDS: Final = np.uint64(0x5555555555555555)


@kernel
def shard_index(key: np.uint64, shards: Int) -> Int:
    """Shard of a 63-bit key: fastrange on its top 32 bits, as `kvcompass.keys.shard_of`."""
    return np.int64(((key >> _31) * np.uint64(shards)) >> _32)


@kernel
def lookup_keys(words: U32, directory: U64, present: Flags, tables: Int, keys: U64, values: U64) -> None:
    """Fill values[n, tables] with the values of the keys; zero where the key's shard is absent."""
    for i in range(keys.size):
        shard = shard_index(keys[i], present.size)
        for table in range(tables):
            if present[shard]:
                values[i, table] = read_key(words, directory[shard * tables + table], keys[i])
            else:
                values[i, table] = _0


@kernel
def match_keys(
    words: U32,
    directory: U64,
    present: Flags,
    tables: Int,
    keys: U64,
    rungs: I32,
    queried: Flags,
    guard: I32,
    table_region: I32,
    table_members: I32,
    members: I32,
    member_slot: I32,
    match_tokens: I32,
    tier: U8,
) -> None:
    """Longest contiguous run of set levels of every worker (prefix-consistency filter).

    Table t belongs to region table_region[t] (-1: nobody's) and its workers are
    members[table_members[t]:table_members[t + 1]], each with its field member_slot. keys[l] is the key of
    rungs[l]; levels beyond keys.size have none. For region r the levels with queried[r, l] are claims and
    guard[r] (-1: none) is read as a filter that is never credited. Levels of absent shards are skipped.
    Writes match_tokens (0: none) and tier for every member; other workers keep what they held.
    """
    levels = min(keys.size, rungs.size)
    for table in range(tables):
        region = np.int64(table_region[table])
        first = np.int64(table_members[table])
        last = np.int64(table_members[table + 1])
        for m in range(first, last):
            match_tokens[members[m]] = 0
            tier[members[m]] = 0
        if region < 0 or first == last:
            continue
        alive = _FIELDS
        for level in range(levels):
            guards = level == np.int64(guard[region])
            if not (queried[region, level] or guards):
                continue
            shard = shard_index(keys[level], present.size)
            if not present[shard]:
                continue
            value = read_key(words, directory[shard * tables + table], keys[level])
            alive &= value | (value >> _1)
            if alive == _0:
                break
            if guards:
                continue
            for m in range(first, last):
                field = np.uint64(2 * member_slot[m])
                if (alive >> field) & _1 == _1:
                    match_tokens[members[m]] = rungs[level]
                    tier[members[m]] = np.uint8((value >> field) & _3)
