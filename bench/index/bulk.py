"""A table built from all its keys in one call, as after a restart: against inserting them one by one."""

import numpy as np

from bench.index.results import Results
from bench.index.tables import full_writer, random_keys, shape_for
from bench.index.timing import once_ms
from kvcompass.index import IndexView

OCCUPANCY = 0.85


def measure(entries: int, results: Results) -> None:
    """Load a full report into an empty writer."""
    shape, keys = shape_for(entries, OCCUPANCY), random_keys(entries, 8)
    writer, tiers = full_writer(shape), np.ones(entries, np.uint8)
    full_writer(shape_for(16, OCCUPANCY)).load(keys[:16], 0, 0, tiers[:16])
    took_ms = once_ms(lambda: writer.load(keys, 0, 0, tiers))
    assert writer.entries == entries
    view = IndexView(shape)
    view.load_snapshot(0, writer.snapshot(), 0, writer.digest())
    assert view.lookup(keys[:1_000]).all()
    results.figure(
        f"bulk build to {100 * OCCUPANCY:.0f} %, us a key", 1e3 * took_ms / entries, "bulk_build_us"
    )
    results.figure("bulk build, ms in all", took_ms, "bulk_build_ms")
