"""A worker without an engine that holds as many keys as it is told to."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.keys import shard_of
from kvcompass.keys.digest import holdings_digest
from kvcompass.plan.model import Worker
from kvcompass.tier import Tier

_KEY_BITS: Final = 63

Held = tuple[NDArray[np.uint64], NDArray[np.uint8]]


class HeldKeys:
    """`kvcompass.roles.unit_report.ReportedWorker`, and what is told of it.

    Keys are drawn from a seed, in VRAM; it holds the first n of them.
    """

    vouches = True

    def __init__(self, worker: Worker, shards: int, *, epoch: int, random_seed: int) -> None:
        """Holds nothing. `random_seed`: another for each worker."""
        self.worker = worker
        self.epoch = epoch
        self._seed = random_seed
        self.shards = shards
        self._by_shard: list[Held] = [
            self._in_shard(np.zeros(0, np.uint64), shard) for shard in range(shards)
        ]
        self._told = [(0, 0)] * shards

    @property
    def told(self) -> "HeldKeys":
        """Itself."""
        return self

    def digest(self, shard: int) -> int:
        """Of what is held in a shard."""
        return self._told[shard][1]

    def count(self, shard: int) -> int:
        """Keys held in a shard."""
        return self._told[shard][0]

    def report(self, shard: int) -> Held:
        """All of a shard."""
        return self._by_shard[shard]

    def hold(self, keys: int) -> None:
        """Holds so many keys from now on, in all shards: those of a smaller number are among them."""
        drawn = np.random.default_rng(self._seed).integers(0, 1 << _KEY_BITS, size=keys, dtype=np.uint64)
        self._by_shard = [self._in_shard(drawn, shard) for shard in range(self.shards)]
        self._told = [(held.size, holdings_digest(held, tiers)) for held, tiers in self._by_shard]

    def _in_shard(self, keys: NDArray[np.uint64], shard: int) -> Held:
        mine = keys[shard_of(keys, self.shards) == shard]
        return mine, np.full(mine.size, Tier.VRAM, np.uint8)
