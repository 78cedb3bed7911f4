"""One stream of random numbers a subsystem, so that drawing more in one changes nothing in another."""

import hashlib
import random

import numpy as np


def _seed_of(seed: int, subsystem: str) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{subsystem}".encode()).digest()[:8], "big")


def random_stream(seed: int, subsystem: str) -> random.Random:
    """The stream of a subsystem, such as `workload.arrivals` or `link us eu`."""
    return random.Random(_seed_of(seed, subsystem))


def array_stream(seed: int, subsystem: str) -> np.random.Generator:
    """The same for arrays; another stream than `random_stream`'s of this name."""
    return np.random.Generator(np.random.PCG64(_seed_of(seed, f"{subsystem}[]")))
