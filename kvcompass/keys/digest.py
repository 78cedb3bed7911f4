"""The digest two sides compare to know whether they agree on what a worker holds."""

from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

_STEP: Final = 0x9E3779B97F4A7C15
_FIRST: Final = 0xBF58476D1CE4E5B9
_SECOND: Final = 0x94D049BB133111EB
_64_BITS: Final = 2**64 - 1

_Words = TypeVar("_Words", int, npt.NDArray[Any])
"""One word, or uint64[n] of them. Of a few, each is sooner done by itself."""


def mix64(words: _Words) -> _Words:
    """Return each word scrambled by a bijection of 64 bits (the finalizer of splitmix64)."""
    mixed = (words + _STEP) & _64_BITS
    mixed ^= mixed >> 30
    mixed = (mixed * _FIRST) & _64_BITS
    mixed ^= mixed >> 27
    mixed = (mixed * _SECOND) & _64_BITS
    mixed ^= mixed >> 31
    return mixed


def pair_words(keys: _Words, tiers: _Words) -> _Words:
    """Return what each pair of a key and a tier, 1 or 2, has in the digest."""
    return mix64(keys * 3 + tiers)


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
    return int(np.bitwise_xor.reduce(pair_words(keys, tiers.astype(np.uint64))))
