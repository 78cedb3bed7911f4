"""A worker with a `UnitReport`, for a world of one shard: the agent of an engine is a dictionary of keys."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from kvcompass.keys.digest import holdings_digest
from kvcompass.roles.holdings import ShardEdits


@dataclass
class HeldKeys:
    """What `UnitReport` asks of a `WorkerAgent`, and of its holdings."""

    worker_id: str
    epoch: int = 1
    vouches: bool = True
    tiers: dict[int, int] = field(default_factory=dict)

    @property
    def worker(self) -> SimpleNamespace:
        return SimpleNamespace(id=self.worker_id)

    @property
    def told(self) -> "HeldKeys":
        return self

    def report(self, shard: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        return np.array(list(self.tiers), np.uint64), np.array(list(self.tiers.values()), np.uint8)

    def digest(self, shard: int) -> int:
        return holdings_digest(*self.report(shard))

    def count(self, shard: int) -> int:
        return len(self.tiers)

    def edit(self, tiers: dict[int, int]) -> ShardEdits:
        for key, tier in tiers.items():
            self.tiers[key] = tier
            if not tier:
                del self.tiers[key]
        return ShardEdits(0, dict(tiers))
