"""A table that outgrows its size again and again: memory over the cycle, and the longest stop.

Memory is all that the view uses: also the table that is being built, and the room that others left behind.
"""

import numpy as np

from bench.index.results import Results
from bench.index.tables import BATCH, random_keys, shape_for
from bench.index.timing import clock_ns, quiet
from kvcompass.index import IndexView, ShardTables

GROWTHS = 16
"""Times the first size: four doublings."""


def measure(entries: int, results: Results) -> None:
    """Insert `entries` keys into a table meant for a sixteenth of them, a view following."""
    shape = shape_for(max(1, entries // GROWTHS), 0.85)
    writer, view, keys = ShardTables(shape, 0, random_seed=1), IndexView(shape), random_keys(entries, 7)
    view.load_snapshot(0, writer.snapshot(), 0, writer.digest())
    sequence, snapshots = 0, 0
    bits, edit_ns, view_ns = [], [], []
    tiers = np.ones(BATCH, np.uint8)
    with quiet():
        for at in range(0, entries, BATCH):
            batch = keys[at : at + BATCH]
            began = clock_ns()
            patches = writer.edit(batch, 0, 0, tiers[: batch.size])
            edit_ns.append(clock_ns() - began)
            sequence += patches.groups
            if patches.rebuilt:
                snapshots += 1
                data, digest = writer.snapshot(), writer.digest()
                began = clock_ns()
                view.load_snapshot(0, data, sequence, digest)
            else:
                began = clock_ns()
                view.apply(0, sequence - patches.groups + 1, patches.groups, patches.payload)
            view_ns.append(clock_ns() - began)
            bits.append(8 * view.used_bytes / writer.entries)
    assert view.digest(0) == writer.digest()
    assert view.lookup(keys[:1_000]).all()
    cycle = np.array(bits[len(bits) // GROWTHS :])
    results.figure("growth cycle, mean view bits an entry", float(cycle.mean()), "growth.view_bits.mean")
    results.figure("growth cycle, most view bits an entry", float(cycle.max()), "growth.view_bits.most")
    results.figure("growing, longest edit, ms", max(edit_ns) / 1e6, "growth.longest_ms.writer")
    results.figure("growing, longest call of the view, ms", max(view_ns) / 1e6, "growth.longest_ms.view")
    results.figure("growing, snapshots needed", snapshots, "growth.snapshots")
