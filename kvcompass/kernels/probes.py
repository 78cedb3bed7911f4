"""A lookup in three steps, each for many keys before the next, so that their cache misses overlap.

    aim     the key's hashes for one table are known: ask for its two Othello words
    name    read the two bits: they name the bucket; ask for that
    read    read seed, fingerprint and value

A probe is one key at one table: a row of `probes`, uint64[PROBES, 4].
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import U64, Int, Words
from kvcompass.kernels.buckets import named_bucket, read_bucket, seed_index, value_index
from kvcompass.kernels.hashing import first_node, second_node
from kvcompass.kernels.image import BASE, NODES_A, NODES_B, SALT, node_word
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.prefetch import prefetch

PROBES: Final = 64
"""Probes under way at once: more than a core can wait for, and few enough to stay in its first cache."""
ROW_AT: Final = 0
"""Directory row of the table."""
BUCKET_MIX: Final = 1
NODE_MIX: Final = 2
NAMED: Final = 3
"""The bucket, once named."""
PROBE: Final = 4
"""Columns of a probe."""

_0: Final = np.uint64(0)


@kernel
def aim(
    words: Words, directory: U64, probes: U64, probe: Int, at: Int, bucket_mix: np.uint64, node_mix: np.uint64
) -> None:
    """Start a probe of the table in row `at` for a key of these mixes."""
    row = directory[at]
    node_mix *= row[SALT]
    probes[probe, ROW_AT] = np.uint64(at)
    probes[probe, BUCKET_MIX] = bucket_mix * row[SALT]
    probes[probe, NODE_MIX] = node_mix
    prefetch(words, node_word(words, row, first_node(node_mix, row[NODES_A])))
    prefetch(words, node_word(words, row, second_node(node_mix, row[NODES_A], row[NODES_B])))


@kernel
def name(words: Words, directory: U64, probes: U64, probe: Int) -> None:
    """Find the bucket of a probe and ask for its memory."""
    row = directory[np.int64(probes[probe, ROW_AT])]
    bucket = named_bucket(words, row, probes[probe, BUCKET_MIX], probes[probe, NODE_MIX])
    probes[probe, NAMED] = bucket
    prefetch(words, row[BASE] + value_index(words, row, bucket, _0))
    prefetch(words, row[BASE] + seed_index(words, row, bucket))


@kernel
def read(words: Words, directory: U64, probes: U64, probe: Int) -> np.uint64:
    """Value that a named probe finds."""
    row = directory[np.int64(probes[probe, ROW_AT])]
    return read_bucket(words, row, probes[probe, NAMED], probes[probe, BUCKET_MIX], probes[probe, NODE_MIX])
