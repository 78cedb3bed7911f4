"""The digest two sides compare to know whether they agree on what a worker holds."""

from typing import Final

import numpy as np
import numpy.typing as npt

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)


def mix64(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return each word scrambled by a bijection of 64 bits (the finalizer of splitmix64)."""
    mixed = words + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def holdings_digest(keys: npt.NDArray[np.uint64], tiers: npt.NDArray[np.uint8]) -> int:
    """Return the xor of the mixed (key, tier) pairs; 0 for no keys.

    A xor, so that either side keeps it up to date by adding and taking away single pairs, in any order.

    Args:
        keys: uint64[n], distinct.
        tiers: uint8[n], 1 or 2. A key that is not held has no part in the digest: leave it out.
    """
    assert keys.shape == tiers.shape, "one tier a key"
    if not keys.size:
        return 0
    return int(np.bitwise_xor.reduce(pair_words(keys, tiers)))


def pair_words(keys: npt.NDArray[np.uint64], tiers: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint64]:
    """Return what each pair has in the digest."""
    return mix64(keys * np.uint64(3) + tiers.astype(np.uint64))
