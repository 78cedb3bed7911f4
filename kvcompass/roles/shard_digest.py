"""The digest and the count of what a worker has registered in each shard, kept up to date lazily."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kvcompass.keys import shard_of
from kvcompass.keys.digest import pair_words

_PENDING: Final = 8_192
"""Keys whose changes wait, at most."""


class ShardDigests:
    """Renewals ask once a second, and changes come with every batch: they wait until somebody asks."""

    def __init__(self, shards: int) -> None:
        self._digests = [0] * shards
        self._counts = [0] * shards
        self._before: dict[int, int] = {}
        """Tiers that the digests know of keys that have changed since, and"""
        self._after: dict[int, int] = {}
        """the present ones, in the same order."""

    def change(self, changes: Sequence[tuple[int, int, int]]) -> None:
        """Note keys, the tier of each before a change and the one after it; 0 for none."""
        for key, before, after in changes:
            self._before.setdefault(key, before)
            self._after[key] = after
        if len(self._after) >= _PENDING:
            self._settle()

    def digest(self, shard: int) -> int:
        """Xor over all pairs of key and tier of a shard; see `holdings_digest`."""
        self._settle()
        return self._digests[shard]

    def count(self, shard: int) -> int:
        """Keys in a shard."""
        self._settle()
        return self._counts[shard]

    def _settle(self) -> None:
        changed = len(self._after)
        if not changed:
            return
        # What was there leaves the xor as what is there now enters it: by being part of it once more.
        keys = np.tile(np.fromiter(self._before, np.uint64, changed), 2)
        tiers = np.empty(2 * changed, np.uint8)
        tiers[:changed] = np.fromiter(self._before.values(), np.uint8, changed)
        tiers[changed:] = np.fromiter(self._after.values(), np.uint8, changed)
        self._before.clear()
        self._after.clear()
        signs = np.where(tiers > 0, 1, 0)
        signs[:changed] *= -1
        words = np.where(tiers > 0, pair_words(keys, tiers), np.uint64(0))
        shards = shard_of(keys, len(self._digests))
        order = np.argsort(shards, kind="stable")
        shards = shards[order]
        starts = np.flatnonzero(np.concatenate(([True], shards[1:] != shards[:-1])))
        mixed = np.bitwise_xor.reduceat(words[order], starts).tolist()
        counts = np.add.reduceat(signs[order], starts).tolist()
        for shard, word, count in zip(shards[starts].tolist(), mixed, counts, strict=True):
            self._digests[shard] ^= word
            self._counts[shard] += count
