"""The hash functions of the index, all in uint64: every constant is wrapped, or its type would change.

Two independent 64-bit mixes of a key, each times the table's odd salt: the *bucket mix* names the two
candidate buckets, the *node mix* names the two Othello nodes and, through a bucket's seed, the slot. A key is
mixed once for all tables; the product alone is new at each. The lower half of a product depends on the lower
half of the mix alone, whatever the salt: whoever finds some thousand keys whose mixes end alike, which takes
2^44 hashes, could lay them all on one node of any table. So the upper half of yet another product stands for
it. Shards are cut by a key's raw top bits (`kvcompass.keys.shard_of`); both mixes are full avalanches, so a
shard's keys still spread over all buckets.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.jit import kernel

_32: Final = np.uint64(32)
_33: Final = np.uint64(33)
_30: Final = np.uint64(30)
_27: Final = np.uint64(27)
_31: Final = np.uint64(31)
_62: Final = np.uint64(62)
_MURMUR_1: Final = np.uint64(0xFF51AFD7ED558CCD)
_MURMUR_2: Final = np.uint64(0xC4CEB9FE1A85EC53)
_SPLIT_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_SPLIT_2: Final = np.uint64(0x94D049BB133111EB)
GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)

SEEDS: Final = 256
"""Bucket seeds are 8 bits: with 5, one full bucket in 21 finds no seed; with 8, one in 1e11."""


@kernel
def mix_bucket(x: np.uint64) -> np.uint64:
    """Bijective 64-bit mix (murmur3's finaliser)."""
    x ^= x >> _33
    x *= _MURMUR_1
    x ^= x >> _33
    x *= _MURMUR_2
    return x ^ (x >> _33)


@kernel
def mix_node(x: np.uint64) -> np.uint64:
    """Bijective 64-bit mix (splitmix64's finaliser), independent of `mix_bucket`."""
    x ^= x >> _30
    x *= _SPLIT_1
    x ^= x >> _27
    x *= _SPLIT_2
    return x ^ (x >> _31)


def _multipliers() -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    state, values = 0, []
    for _ in range(SEEDS):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        x = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
        values.append((x ^ (x >> 31)) | 1)
    return np.array(values, np.uint64)


MULTIPLIERS: Final = _multipliers()


@kernel
def _lower(mix: np.uint64) -> np.uint64:
    """32 bits of a salted mix that depend on all of it, as its upper half does."""
    return (mix * _MURMUR_2) >> _32


@kernel
def first_bucket(bucket_mix: np.uint64, buckets: np.uint64) -> np.uint64:
    """Candidate bucket named by Othello bit 0 (fastrange on `_lower`)."""
    return (_lower(bucket_mix) * buckets) >> _32


@kernel
def second_bucket(bucket_mix: np.uint64, buckets: np.uint64) -> np.uint64:
    """Candidate bucket named by Othello bit 1 (fastrange on the high half)."""
    return ((bucket_mix >> _32) * buckets) >> _32


@kernel
def first_node(node_mix: np.uint64, nodes_a: np.uint64) -> np.uint64:
    """Othello node in A, 0..nodes_a-1."""
    return (_lower(node_mix) * nodes_a) >> _32


@kernel
def second_node(node_mix: np.uint64, nodes_a: np.uint64, nodes_b: np.uint64) -> np.uint64:
    """Othello node in B, numbered after A: nodes_a..nodes_a+nodes_b-1."""
    return nodes_a + (((node_mix >> _32) * nodes_b) >> _32)


@kernel
def slot_of(node_mix: np.uint64, bucket_seed: np.uint64) -> np.uint64:
    """Slot 0..3 of a key under a bucket's seed."""
    multiplier: np.uint64 = MULTIPLIERS[bucket_seed]
    return (node_mix * multiplier) >> _62


@kernel
def mix_print(bucket_mix: np.uint64, node_mix: np.uint64) -> np.uint64:
    """64 bits whose upper ones are a key's fingerprint, independent of its bucket, slot and nodes."""
    return (bucket_mix + node_mix) * GOLDEN


@kernel
def mix_place(position: np.uint64) -> np.uint64:
    """What the position of a word adds to its contribution to a digest."""
    return mix_bucket(position + GOLDEN)


@kernel
def mix_word(place: np.uint64, word: np.uint64) -> np.uint64:
    """Contribution of one word of an image to its digest; zero words contribute nothing."""
    return mix_node(place ^ word) if word != np.uint64(0) else np.uint64(0)
