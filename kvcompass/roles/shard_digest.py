"""The digest and the count of what a worker has registered in each shard, kept up to date lazily."""

from typing import Final

import numpy as np

from kvcompass.keys.digest import holdings_digest, pair_words

_PENDING: Final = 8_192
"""Pairs of one shard that wait, at most."""
_FEW: Final = 12
"""Pairs that are sooner mixed one by one than as arrays."""


class ShardDigests:
    """Renewals ask once a second, and changes come with every batch: they wait until somebody asks."""

    def __init__(self, shards: int) -> None:
        self._digests = [0] * shards
        self._counts = [0] * shards
        self._pairs: list[list[tuple[int, int]]] = [[] for _ in range(shards)]
        """Keys and tiers, by shard, that came or left since: a xor is left by being entered again."""

    def change(self, shard: int, key: int, before: int, after: int) -> None:
        """Note the tier of a key before a change and after it; 0 for none."""
        pairs = self._pairs[shard]
        if before:
            self._counts[shard] -= 1
            pairs.append((key, before))
        if after:
            self._counts[shard] += 1
            pairs.append((key, after))
        if len(pairs) >= _PENDING:
            self._settle(shard)

    def digest(self, shard: int) -> int:
        """Xor over all pairs of key and tier of a shard; see `holdings_digest`."""
        if self._pairs[shard]:
            self._settle(shard)
        return self._digests[shard]

    def count(self, shard: int) -> int:
        """Keys in a shard."""
        return self._counts[shard]

    @property
    def total(self) -> int:
        """Keys in all shards."""
        return sum(self._counts)

    def _settle(self, shard: int) -> None:
        pairs = self._pairs[shard]
        if len(pairs) <= _FEW:
            for key, tier in pairs:
                self._digests[shard] ^= pair_words(key, tier)
        else:
            keys, tiers = zip(*pairs, strict=True)
            self._digests[shard] ^= holdings_digest(np.array(keys, np.uint64), np.array(tiers, np.uint8))
        pairs.clear()
