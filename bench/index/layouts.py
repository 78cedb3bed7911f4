"""Bits an entry and false hits of every layout, by true occupancy."""

import numpy as np

from bench.index.results import Results
from bench.index.tables import BATCH, full_writer, random_keys, shape_for
from kvcompass.index import IndexView

LAYOUTS = {"default": (32, "fingerprints"), "wide": (64, "fingerprints"), "paper": (32, "paper")}
OCCUPANCIES = (0.20, 0.40, 0.60, 0.80, 0.95)
STRANGERS = 2_000_000


def measure(entries: int, results: Results) -> None:
    """Fill a table of each layout, and ask for keys that were never inserted."""
    strangers = random_keys(STRANGERS, 99)
    for name, (value_bits, layout) in LAYOUTS.items():
        shape = shape_for(entries, OCCUPANCIES[-1], value_bits=value_bits, layout=layout)
        writer, keys, filled = full_writer(shape), random_keys(entries, 1), 0
        for occupancy in OCCUPANCIES:
            end = min(entries, int(occupancy * writer.slots))
            for at in range(filled, end, 64 * BATCH):
                part = keys[at : min(end, at + 64 * BATCH)]
                writer.edit(part, 0, 0, np.ones(part.size, np.uint8))
            filled = end
            view = IndexView(shape)
            view.load_snapshot(0, writer.snapshot(), 0, writer.digest())
            rate = np.count_nonzero(view.lookup(strangers)) / STRANGERS
            true = writer.entries / writer.slots
            row = f"{name} layout at {100 * true:.0f} %"
            last = occupancy == OCCUPANCIES[-1]
            results.figure(f"{row}, false hits a lookup", rate, *([f"false_hit_rate.{name}"] if last else []))
            results.put(f"false_hits.{name}.{round(100 * occupancy)}", rate)
            bits = writer.image_bits / writer.entries
            results.figure(
                f"{row}, view bits an entry", bits, *([f"view_bits_per_entry.{name}"] if last else [])
            )
