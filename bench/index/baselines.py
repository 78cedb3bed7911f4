"""Open addressing and Python's dict through the same operations, in the same run."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.baselines import Baseline, HashMap, OpenAddressing
from bench.index.results import Results
from bench.index.tables import BATCH, random_keys
from bench.index.timing import timed

MAKERS: dict[str, Callable[[int], Baseline]] = {
    "open_addressing": OpenAddressing,
    "hash_map": lambda entries: HashMap(),
}
EDITED = 100_000
BULK = 100_000


def measure(entries: int, results: Results) -> None:
    """Fill each to `entries`, timing the last inserts, then updates, lookups and removals."""
    keys = random_keys(entries, 1)
    for path, make in MAKERS.items():
        _measure(make(entries), keys, results, f"baselines.{path}")


def _measure(table: Baseline, keys: NDArray[np.uint64], results: Results, path: str) -> None:
    edited = min(EDITED, keys.size // 4) // BATCH * BATCH
    held, last = np.split(keys, [keys.size - edited])
    ones, twos = np.full(BATCH, 1, np.uint32), np.full(BATCH, 2, np.uint32)
    rng = np.random.default_rng(2)
    touched = _batches(rng.choice(held, edited, replace=False), BATCH)
    table.put(held, np.ones(held.size, np.uint32))
    insert = timed(lambda batch: table.put(batch, ones), _batches(last, BATCH), BATCH)
    results.time(f"{table.name}: insert", insert, f"{path}.insert_us")
    update = timed(lambda batch: table.put(batch, twos), touched, BATCH)
    results.time(f"{table.name}: update", update, f"{path}.update_us")
    half = zip(_batches(rng.choice(held, 72_000), 24), _batches(random_keys(72_000, 3), 24), strict=True)
    lookup = timed(table.get, [np.concatenate(both) for both in half])
    results.time(f"{table.name}: 48 lookups, half of them held", lookup, f"{path}.lookup48_us")
    for what, asked in (("held", rng.choice(held, 5 * BULK)), ("unknown", random_keys(5 * BULK, 4))):
        bulk = 1e3 * timed(table.get, _batches(asked, BULK), BULK).p50_us
        results.figure(
            f"{table.name}: look up in bulk, {what} keys, ns a key", bulk, f"{path}.bulk_lookup_ns.{what}"
        )
    results.figure(f"{table.name}: bits an entry", table.view_bits_per_entry, f"{path}.bits_per_entry")
    remove = timed(table.remove, touched, BATCH)
    results.time(f"{table.name}: remove", remove, f"{path}.remove_us")
    assert len(table) == keys.size - edited


def _batches(keys: NDArray[np.uint64], size: int) -> list[NDArray[np.uint64]]:
    """Cut into pieces of `size`; `keys` are a multiple of it."""
    return list(keys.reshape(-1, size))
