"""Cost of the index: editing, applying, looking up, matching; bits an entry and false hits.

python -m bench.index --entries 200000 --json out/bench-index.json
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

from kvcompass.index import IndexShape, IndexView, LookupUnit, ShardTables, WorkerMap, warm
from kvcompass.levels import QueryPlan

REGIONS, LEVELS = 8, 6
BATCH = 256


def random_keys(count: int, seed: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Distinct-enough 63-bit keys."""
    return np.random.default_rng(seed).integers(0, 1 << 63, count, dtype=np.uint64)


def measure_writer(entries: int) -> dict[str, float]:
    """One table, filled to its expected entries; us an edit within batches of 256, as a unit makes them."""
    shape = IndexShape(shards=1, tables=1, value_bits=32, expected_entries=entries)
    writer, view = ShardTables(shape, 0, random_seed=1), IndexView(shape)
    view.load_snapshot(0, writer.snapshot(), 0, writer.digest())
    keys, ones = random_keys(entries, 1), np.ones(entries, np.uint8)
    sequence, applied_ns, payload_bytes = 0, 0, 0

    def edit(start: int, end: int, slot: int, tier: int) -> int:
        nonlocal sequence, applied_ns, payload_bytes
        took = 0
        for at in range(start, end, BATCH):
            began = perf_counter_ns()
            patches = writer.edit(keys[at : at + BATCH], 0, slot, ones[at : at + BATCH] * np.uint8(tier))
            took += perf_counter_ns() - began
            if patches.rebuilt:
                sequence += patches.groups
                view.load_snapshot(0, writer.snapshot(), sequence, writer.digest())
                continue
            began = perf_counter_ns()
            view.apply(0, sequence + 1, patches.groups, patches.payload)
            applied_ns += perf_counter_ns() - began
            sequence += patches.groups
            payload_bytes += len(patches.payload)
        return took

    nine_tenths, part = entries * 9 // 10, entries // 10
    edit(0, nine_tenths, 0, 1)
    applied_ns = payload_bytes = 0
    insert = edit(nine_tenths, entries, 0, 1) / (entries - nine_tenths)
    insert_apply, insert_bytes = applied_ns / (entries - nine_tenths), payload_bytes / (entries - nine_tenths)
    occupancy = writer.entries / writer.slots
    bits = writer.image_bits / writer.entries
    strangers = random_keys(1_000_000, 99)
    began = perf_counter_ns()
    false_hits = np.count_nonzero(view.lookup(strangers)) / strangers.size
    bulk_lookup = (perf_counter_ns() - began) / strangers.size
    update = edit(0, part, 1, 2) / part
    edit(0, part, 1, 0)
    remove = edit(0, part, 0, 0) / part
    began = perf_counter_ns()
    snapshot = writer.snapshot()
    snapshot_ms = (perf_counter_ns() - began) / 1e6
    began = perf_counter_ns()
    view.load_snapshot(0, snapshot, sequence, writer.digest())
    load_ms = (perf_counter_ns() - began) / 1e6
    began = perf_counter_ns()
    writer.clear_worker(0, 0)
    clear_ms = (perf_counter_ns() - began) / 1e6
    return {
        "insert_us": insert / 1e3,
        "insert_apply_us": insert_apply / 1e3,
        "insert_patch_bytes": insert_bytes,
        "update_us": update / 1e3,
        "remove_us": remove / 1e3,
        "bulk_lookup_ns_per_key": bulk_lookup,
        "occupancy": occupancy,
        "bits_per_entry": bits,
        "bits_per_entry_at_95_percent": bits * occupancy / 0.95,
        "false_hit_share": false_hits,
        "snapshot_mb": len(snapshot) / 1e6,
        "snapshot_ms": snapshot_ms,
        "load_snapshot_ms": load_ms,
        "clear_worker_ms": clear_ms,
        "rebuilds": float(writer.rebuilds),
    }


def measure_reader(entries: int) -> dict[str, float]:
    """Eight regions, four shards, six lengths, all of them indexed; us a call, median."""
    shards = 4
    shape = IndexShape(shards=shards, tables=REGIONS, value_bits=32, expected_entries=max(1, entries // 4))
    view = IndexView(shape)
    keys = random_keys(entries, 2)
    owner = (keys >> np.uint64(31)) * np.uint64(shards) >> np.uint64(32)
    for shard in range(shards):
        writer = ShardTables(shape, shard, random_seed=3)
        own = keys[owner == shard]
        for table in range(REGIONS):
            writer.edit(own, table, 0, np.ones(own.size, np.uint8))
        view.load_snapshot(shard, writer.snapshot(), 1, writer.digest())
    unit = LookupUnit(
        view,
        QueryPlan(
            rungs=np.arange(1, LEVELS + 1, dtype=np.int32) * np.int32(128),
            queried=np.ones((REGIONS, REGIONS, LEVELS), np.bool_),
            guard=np.full((REGIONS, REGIONS), -1, np.int32),
        ),
        WorkerMap(
            table=np.repeat(np.arange(REGIONS), 16).astype(np.int32),
            slot=np.tile(np.arange(16), REGIONS).astype(np.int32),
            region=np.repeat(np.arange(REGIONS), 16).astype(np.int32),
        ),
        0,
    )
    rng = np.random.default_rng(4)
    prompts = [rng.choice(keys, LEVELS) for _ in range(5000)]
    misses = [random_keys(LEVELS, 100 + i) for i in range(2000)]
    return {
        "lookup48_us": median_us(view.lookup, prompts),
        "match48_held_us": median_us(unit.match, prompts),
        "match48_unknown_us": median_us(unit.match, misses),
        "view_mb": view.used_bytes / 1e6,
    }


def median_us(call: Callable[[Any], object], arguments: list[Any]) -> float:
    """Median over the arguments."""
    took = []
    for argument in arguments:
        began = perf_counter_ns()
        call(argument)
        took.append(perf_counter_ns() - began)
    return float(np.median(took)) / 1e3


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm()
    results = measure_writer(options.entries) | measure_reader(options.entries)
    for name, value in results.items():
        print(f"{name:32s} {value:12.4f}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"entries": options.entries} | results, indent=2) + "\n")


if __name__ == "__main__":
    main()
