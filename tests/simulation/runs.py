"""Small runs for tests: a source with few prefixes, a fleet, a router, and what came of it as bytes."""

import hashlib
import random

import numpy as np

from simulator.fleet import Fleet
from simulator.records import COLUMNS
from simulator.request import Request
from simulator.router import Rival
from simulator.world import World


class FewFamilies:
    """Poisson arrivals of prompts that share one of a few prefixes. A `RequestSource`."""

    label = "few families (synthetic), poisson"

    def __init__(
        self,
        fleet: Fleet,
        *,
        count: int,
        rate_per_s: float,
        seed: int,
        families: int = 12,
        shared: int = 1_024,
        own: int = 400,
        answer: int = 24,
    ) -> None:
        self._stream = random.Random(seed)
        self._tokens = np.random.default_rng(seed)
        self._prefixes = [self._drawn(shared) for _ in range(families)]
        self._weights = fleet.origin_weights
        self._count, self._rate, self._own, self._answer = count, rate_per_s, own, answer
        self._made, self._now_us = 0, 0.0

    def next(self) -> Request | None:
        if self._made == self._count:
            return None
        self._now_us += 1e6 * self._stream.expovariate(self._rate)
        family = self._stream.randrange(len(self._prefixes))
        region = self._stream.choices(range(len(self._weights)), self._weights)[0]
        prompt = np.concatenate((self._prefixes[family], self._drawn(1 + self._stream.randrange(self._own))))
        self._made += 1
        return Request(
            self._made - 1,
            int(self._now_us),
            region,
            prompt,
            self._drawn(1 + self._stream.randrange(self._answer)),
            family=str(family),
        )

    def ended(self, request: Request, now_us: int) -> Request | None:
        return None

    def _drawn(self, length: int) -> np.ndarray:
        return self._tokens.integers(0, 100_000, length, np.int32)


def simulated(fleet: Fleet, rival: Rival, *, count: int, rate_per_s: float, seed: int = 1) -> World:
    """A run that has ended and kept the laws."""
    source = FewFamilies(fleet, count=count, rate_per_s=rate_per_s, seed=seed)
    world = World(fleet, source, rival, seed=seed)
    world.run()
    return world


def fingerprint(world: World) -> str:
    """Of everything that is known of every request."""
    sha = hashlib.sha256()
    for name in COLUMNS:
        sha.update(world.records.column(name).tobytes())
    return sha.hexdigest()
