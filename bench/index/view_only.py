"""A view of very many entries: whether it fits, what it takes, how fast it answers.

Some shards are really written, each with keys of its own; every other loads the snapshot of the last of
them. So all of the view's memory is in use and every line is a full one, while the run takes minutes and not
an hour.
"""

from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from bench.index.results import Results
from bench.index.tables import BATCH, full_writer, random_keys, shape_for
from bench.index.timing import timed
from bench.resident import settled_bytes
from kvcompass.index import IndexShape, IndexView

SHARD_ENTRIES = 16_000_000
OCCUPANCY = 0.95


def measure(entries: int, written: int, results: Results) -> None:
    """Build a view of `entries`, of which at least `written` are really inserted, and look up."""
    shards = max(1, round(entries / SHARD_ENTRIES))
    each = entries // shards
    one = shape_for(each, OCCUPANCY)
    before = settled_bytes()
    view = IndexView(IndexShape(shards, 1, 32, one.expected_entries))
    real = min(shards, max(1, -(-written // each)))
    held, took_s, occupancy = [], 0.0, 0.0
    for shard in range(shards):
        if shard < real:
            made = _written(one, _keys_of(shard, shards, each))
            held.append(made.sample)
            took_s += made.took_s
            occupancy += made.occupancy / real
        view.load_snapshot(shard, made.snapshot, 1, made.digest)
    del made
    taken = settled_bytes() - before
    total = each * shards
    results.figure("entries in the view", total, "view_only.entries")
    results.figure("really inserted", real * each, "view_only.inserted")
    results.figure("inserted a second", real * each / took_s, "view_only.inserted_per_s")
    results.figure("true occupancy", occupancy, "view_only.occupancy")
    results.figure("resident, GB", taken / 1e9, "view_only.resident_gb")
    results.figure("resident bits an entry", 8 * taken / total, "view_only.bits_per_entry")
    _look_up(view, np.concatenate(held), results)


@dataclass(frozen=True, slots=True)
class _Written:
    """A shard that was really written, without its writer."""

    snapshot: bytes
    digest: int
    occupancy: float
    took_s: float
    sample: NDArray[np.uint64]
    """About 1e5 of its keys."""


def _written(shape: IndexShape, keys: NDArray[np.uint64]) -> _Written:
    writer = full_writer(shape)
    began = perf_counter()
    for at in range(0, keys.size, 64 * BATCH):
        part = keys[at : at + 64 * BATCH]
        writer.edit(part, 0, 0, np.ones(part.size, np.uint8))
    took_s = perf_counter() - began
    sample = keys[:: max(1, keys.size // 100_000)].copy()
    return _Written(writer.snapshot(), writer.digest(), writer.entries / writer.slots, took_s, sample)


def _keys_of(shard: int, shards: int, count: int) -> NDArray[np.uint64]:
    """Random keys of one shard: their top 32 bits lie in its range."""
    rng = np.random.default_rng((1, shard))
    low, high = -(-(shard << 32) // shards), -(-((shard + 1) << 32) // shards)
    top = rng.integers(low, high, count, dtype=np.uint64)
    return (top << np.uint64(31)) | rng.integers(0, 1 << 31, count, dtype=np.uint64)


def _look_up(view: IndexView, held: NDArray[np.uint64], results: Results) -> None:
    """Sampled keys must all be there; times are of strangers, over all shards."""
    missing = int(np.count_nonzero(view.lookup(held) == 0))
    results.figure("sampled keys that are missing", missing, "view_only.missing")
    asked = random_keys(2_000_000, 2)
    slices = [asked[at : at + 100_000] for at in range(0, asked.size, 100_000)]
    bulk = timed(view.lookup, slices, 100_000)
    results.figure("look up in bulk, ns a key", 1e3 * bulk.p50_us, "view_only.bulk_lookup_ns")
    ones = [asked[i : i + 1] for i in range(20_000)]
    results.time("look up one key (a call)", timed(view.lookup, ones), "view_only.lookup1_us")
    batches = [asked[i : i + 48] for i in range(0, 480_000, 48)]
    results.time("look up 48 keys (a call)", timed(view.lookup, batches), "view_only.lookup48_us")
