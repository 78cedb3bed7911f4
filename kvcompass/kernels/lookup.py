"""Plain lookups in a view: the values of many keys, as they are."""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Flags, Int, Words
from kvcompass.kernels.hashing import mix_bucket, mix_node
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.probes import PROBES, aim, name, read

_0: Final = np.uint64(0)
_31: Final = np.uint64(31)
_32: Final = np.uint64(32)


@kernel
def shard_index(key: np.uint64, shards: Int) -> Int:
    """Shard of a 63-bit key: fastrange on its top 32 bits, as `kvcompass.keys.shard_of`."""
    return np.int64(((key >> _31) * np.uint64(shards)) >> _32)


@kernel
def lookup_keys(words: Words, directory: U64, present: Flags, probes: U64, keys: U64, values: U64) -> None:
    """Fill values[n, tables] with the values of the keys; zero where the key's shard is absent.

    The directory has as many rows for each shard, at least `tables`. Scratch: probes uint64[PROBES, PROBE].
    """
    width = directory.shape[0] // present.size
    tables = values.shape[1]
    per_turn = max(1, PROBES // tables)
    for begin in range(0, keys.size, per_turn):
        end = min(keys.size, begin + per_turn)
        for first in range(0, tables, PROBES):
            last = min(tables, first + PROBES)
            aimed = 0
            for i in range(begin, end):
                shard = shard_index(keys[i], present.size)
                if present[shard]:
                    bucket_mix = mix_bucket(keys[i])
                    node_mix = mix_node(keys[i])
                    for table in range(first, last):
                        aim(words, directory, probes, aimed, shard * width + table, bucket_mix, node_mix)
                        aimed += 1
            for probe in range(aimed):
                name(words, directory, probes, probe)
            taken = 0
            for i in range(begin, end):
                known = present[shard_index(keys[i], present.size)]
                for table in range(first, last):
                    if known:
                        values[i, table] = read(words, directory, probes, taken)
                        taken += 1
                    else:
                        values[i, table] = _0
