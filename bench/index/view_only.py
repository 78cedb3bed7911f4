"""A view of very many entries: whether it fits, what it takes, how fast it answers.

One shard is really written; every other loads the same snapshot. So all of the view's memory is in use and
every line is a full one, while the run takes minutes and not an hour. Lookups are of random keys, over all
shards.
"""

from time import perf_counter

import numpy as np

from bench.index.keys import BATCH, random_keys, shape_for
from bench.index.memory import resident_bytes
from bench.index.results import Results
from bench.index.timing import timed
from kvcompass.index import IndexShape, IndexView, ShardTables

SHARD_ENTRIES = 16_000_000
OCCUPANCY = 0.95


def measure(entries: int, results: Results) -> None:
    """Build and look up."""
    shards = max(1, round(entries / min(entries, SHARD_ENTRIES)))
    each = entries // shards
    one = shape_for(each, OCCUPANCY)
    writer = ShardTables(one, 0, random_seed=1)
    began = perf_counter()
    keys = random_keys(each, 1)
    for at in range(0, each, 64 * BATCH):
        part = keys[at : at + 64 * BATCH]
        writer.edit(part, 0, 0, np.ones(part.size, np.uint8))
    results.figure("written, entries a second", each / (perf_counter() - began))
    data, digest = writer.snapshot(), writer.digest()
    occupancy = writer.entries / writer.slots
    del writer
    before = resident_bytes()
    view = IndexView(IndexShape(shards, 1, 32, one.expected_entries))
    for shard in range(shards):
        view.load_snapshot(shard, data, 1, digest)
    taken = resident_bytes() - before
    total = each * shards
    results.figure("entries in the view", total, "view_only.entries")
    results.figure("true occupancy", occupancy, "view_only.occupancy")
    results.figure("resident, GB", taken / 1e9, "view_only.resident_gb")
    results.figure("resident bits an entry", 8 * taken / total, "view_only.bits_per_entry")
    asked = random_keys(2_000_000, 2)
    slices = [asked[at : at + 100_000] for at in range(0, asked.size, 100_000)]
    view.lookup(slices[0])
    bulk = timed(view.lookup, slices, 100_000)
    results.figure("look up in bulk, ns a key", 1e3 * bulk.p50_us, "view_only.bulk_lookup_ns")
    ones = [asked[i : i + 1] for i in range(20_000)]
    results.time("look up one key (a call)", timed(view.lookup, ones), "view_only.lookup1_us.p50")
    batches = [asked[i : i + 48] for i in range(0, 480_000, 48)]
    results.time("look up 48 keys (a call)", timed(view.lookup, batches), "view_only.lookup48_us.p50")
