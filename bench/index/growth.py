"""A table that outgrows its size again and again, then empties: memory, and the longest stop.

Memory is all that the view uses: also the table that is being built, and the room that others left behind.
Calls have as many keys as a maintenance unit gives them. Memory is asked for beforehand, once, and let go: a
virtual machine takes milliseconds to get a page from its host the first time, and again where the host
has taken it back meanwhile.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bench.index.results import Results
from bench.index.tables import random_keys, shape_for
from bench.index.timing import clock_ns, quiet
from kvcompass.index import IndexView, Patches, ShardTables
from kvcompass.roles.unit_bounds import UnitBounds
from kvcompass.roles.unit_edits import BUSY_KEYS, EDIT_SLICE

GROWTHS = 16
"""Times the first size: four doublings."""
_BYTES_AN_ENTRY = 200
"""More than writer and view take at their most, a table and its double together."""
_LONG_NS = 5_000_000
"""What no call should take."""


def measure(entries: int, results: Results) -> None:
    """Insert `entries` keys into a table meant for a sixteenth of them, a view following; withdraw most."""
    _Followed(1).edit_all(random_keys(1, 8), 1)
    _meet_memory(_BYTES_AN_ENTRY * entries)
    first = max(1, entries // GROWTHS)
    table, keys = _Followed(first), random_keys(entries, 7)
    with quiet():
        table.edit_all(keys[:first], 1)
        bits, edited = table.edit_all(keys[first:], 1)
    assert table.view.lookup(keys[:1_000]).all()
    mean = float(np.average(bits, weights=edited))
    results.figure("growth cycle, mean view bits an entry", mean, "growth.view_bits.mean")
    results.figure("growth cycle, most view bits an entry", max(bits), "growth.view_bits.most")
    table.report("growing", "growth", results)
    leaving = keys[first:]
    with quiet():
        table.edit_all(leaving, 0)
        table.step()
        while table.writer.is_busy:
            table.step()
    assert table.view.lookup(keys[:1_000])[:first].all()
    table.report("emptying", "shrinking", results)
    results.figure(
        "emptied, slots an entry", table.writer.slots / table.writer.entries, "shrinking.slots_per_entry"
    )


class _Followed:
    """A writer and the view that follows it, and how long each of their calls took since the last report."""

    def __init__(self, expected: int) -> None:
        shape = shape_for(expected, 0.85)
        self.writer, self.view = ShardTables(shape, 0, random_seed=1), IndexView(shape)
        self.snapshots = 0
        self._sequence = 0
        self._took_ns: dict[str, list[int]] = {"writer": [], "view": [], "snapshot": []}
        self._load()
        self._took_ns["snapshot"].clear()
        self.snapshots = 0

    def edit_all(self, keys: NDArray[np.uint64], tier: int) -> tuple[list[float], list[int]]:
        """Edit keys at both, as many a call as a unit does.

        Returns:
            Of each call, the view's bits an entry after it, and its keys.
        """
        bits: list[float] = []
        edited: list[int] = []
        at = 0
        while at < keys.size:
            part = keys[at : at + (BUSY_KEYS if self.writer.is_busy else EDIT_SLICE)]
            at += part.size
            self._follow(partial(self.writer.edit, part, 0, 0, np.full(part.size, tier, np.uint8)))
            bits.append(8 * self.view.used_bytes / max(1, self.writer.entries))
            edited.append(part.size)
        return bits, edited

    def step(self) -> None:
        """Let the writer do what is left, a part."""
        self._follow(self.writer.step)

    def report(self, what: str, path: str, results: Results) -> None:
        """Tell and forget the longest calls."""
        for name, took in self._took_ns.items():
            longest = max(took, default=0) / 1e6
            long = sum(ns > _LONG_NS for ns in took) / max(1, len(took))
            results.figure(f"{what}, longest call: {name}, ms", longest, f"{path}.longest_ms.{name}")
            results.figure(f"{what}, calls over 5 ms: {name}", long, f"{path}.over_5_ms.{name}")
        results.figure(f"{what}, snapshots needed", self.snapshots, f"{path}.snapshots")
        self.snapshots = 0
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
        self.snapshots += 1
        steps: list[Callable[[], None]] = [partial(self.view.begin_snapshot, 0)]
        size = UnitBounds().chunk_bytes
        steps.extend(
            partial(self.view.add_snapshot, 0, data[at : at + size]) for at in range(0, len(data), size)
        )
        steps.append(partial(self.view.end_snapshot, 0, self._sequence, digest))
        for step in steps:
            began = clock_ns()
            step()
            self._took_ns["snapshot"].append(clock_ns() - began)


def _meet_memory(size: int) -> None:
    """Write to so many bytes once, and let them go."""
    np.ones(size, np.uint8)
