"""A table that outgrows its size again and again, then empties: memory, and the longest stop.

Memory is all that the view uses: also the table that is being built, and the room that others left behind.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from bench.index.results import Results
from bench.index.tables import BATCH, random_keys, shape_for
from bench.index.timing import clock_ns, quiet
from kvcompass.index import IndexView, Patches, ShardTables

GROWTHS = 16
"""Times the first size: four doublings."""


def measure(entries: int, results: Results) -> None:
    """Insert `entries` keys into a table meant for a sixteenth of them, a view following; withdraw most."""
    table, keys = _Followed(max(1, entries // GROWTHS)), random_keys(entries, 7)
    with quiet():
        bits = [table.edit(keys[at : at + BATCH], 1) for at in range(0, entries, BATCH)]
    assert table.view.lookup(keys[:1_000]).all()
    cycle = np.array(bits[len(bits) // GROWTHS :])
    results.figure("growth cycle, mean view bits an entry", float(cycle.mean()), "growth.view_bits.mean")
    results.figure("growth cycle, most view bits an entry", float(cycle.max()), "growth.view_bits.most")
    table.report("growing", "growth", results)
    leaving = keys[max(1, entries // GROWTHS) :]
    with quiet():
        for at in range(0, leaving.size, BATCH):
            table.edit(leaving[at : at + BATCH], 0)
        table.step()
        while table.writer.is_busy:
            table.step()
    assert table.view.lookup(keys[:1_000])[: entries // GROWTHS].all()
    table.report("emptying", "shrinking", results)
    results.figure(
        "emptied, slots an entry", table.writer.slots / table.writer.entries, "shrinking.slots_per_entry"
    )


class _Followed:
    """A writer and the view that follows it, and how long each of their calls took since the last report."""

    def __init__(self, expected: int) -> None:
        shape = shape_for(expected, 0.85)
        self.writer, self.view = ShardTables(shape, 0, random_seed=1), IndexView(shape)
        self._sequence = 0
        self._took_ns: dict[str, list[int]] = {"writer": [], "view": [], "snapshot": []}
        self._load()
        self._took_ns["snapshot"].clear()

    def edit(self, keys: NDArray[np.uint64], tier: int) -> float:
        """Edit one batch at both; returns the view's bits an entry."""
        self._follow(lambda: self.writer.edit(keys, 0, 0, np.full(keys.size, tier, np.uint8)))
        return 8 * self.view.used_bytes / max(1, self.writer.entries)

    def step(self) -> None:
        """Let the writer do what is left, a part."""
        self._follow(self.writer.step)

    def report(self, what: str, path: str, results: Results) -> None:
        """Tell and forget the longest calls."""
        for name, took in self._took_ns.items():
            longest = max(took, default=0) / 1e6
            results.figure(f"{what}, longest call: {name}, ms", longest, f"{path}.longest_ms.{name}")
        results.figure(f"{what}, snapshots needed", len(self._took_ns["snapshot"]), f"{path}.snapshots")
        for took in self._took_ns.values():
            took.clear()

    def _follow(self, call: Callable[[], Patches]) -> None:
        began = clock_ns()
        patches = call()
        self._took_ns["writer"].append(clock_ns() - began)
        first = self._sequence + 1
        self._sequence += patches.groups
        if patches.rebuilt:
            self._load()
            return
        began = clock_ns()
        self.view.apply(0, first, patches.groups, patches.payload)
        self._took_ns["view"].append(clock_ns() - began)

    def _load(self) -> None:
        data, digest = self.writer.snapshot(), self.writer.digest()
        began = clock_ns()
        self.view.load_snapshot(0, data, self._sequence, digest)
        self._took_ns["snapshot"].append(clock_ns() - began)
