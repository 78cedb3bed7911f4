"""Which shard owns a key."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def shard_of(keys: npt.NDArray[np.uint64], shards: int) -> npt.NDArray[np.int32]:
    """Return the shard of each key (int32[n]): its upper 32 of 63 bits scaled to `shards`.

    Shards are ranges of the key space; the lower bits stay free for the tables' own hashes.
    """
    high = keys >> np.uint64(31)
    return ((high * np.uint64(shards)) >> np.uint64(32)).astype(np.int32)


def keys_of(shard: int, shards: int) -> range:
    """Return the keys that a shard owns: `shard_of` read backwards."""
    first, end = (-(-(each << 32) // shards) << 31 for each in (shard, shard + 1))
    return range(first, end)


def shards_of(keys: Iterable[int], shards: int) -> list[int]:
    """Return the shard of each key: `shard_of` for a few, without arrays."""
    return [((key >> 31) * shards) >> 32 for key in keys]
