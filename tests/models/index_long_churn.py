"""The laws of the index at size: a table grown, turned over and emptied, its view compared all the way.

python -m tests.models.index_long_churn --entries 1e7

Prints what was found, and the longest call at each end; a fault is an AssertionError.
"""

import argparse
from collections.abc import Callable
from time import perf_counter_ns, process_time_ns
from typing import TypeVar

import numpy as np

from kvcompass.index import IndexShape, IndexView, Patches, ShardTables
from kvcompass.index.table_writer import GROW_AT
from kvcompass.warm import warm

T = TypeVar("T")
BATCH = 256
SLOT = 5


class LongChurn:
    """One table and its view; keys come and go in the order of one long array."""

    def __init__(self, keys: np.ndarray, *, expected: int, grow_at: float) -> None:
        shape = IndexShape(shards=1, tables=1, value_bits=32, expected_entries=expected)
        self.writer, self.view = ShardTables(shape, 0, random_seed=1, grow_at=grow_at), IndexView(shape)
        self.keys, self.first, self.end = keys, 0, 0
        self.sequence = 0
        self.longest_ms: dict[str, float] = {}
        self.snapshots = 0
        self._load()

    def insert(self, count: int) -> None:
        """The next keys."""
        self._edit(self.end, self.end + count, 1)
        self.end += count

    def remove(self, count: int) -> None:
        """The oldest keys."""
        self._edit(self.first, self.first + count, 0)
        self.first += count

    def settle(self) -> None:
        """What growing, shrinking and clearing leave to do."""
        self._take(self._timed("step", self.writer.step))
        while self.writer.is_busy:
            self._take(self._timed("step", self.writer.step))

    def check(self, most: int = 1 << 62) -> None:
        """Every present key, or `most` of them, is answered exactly, and the digests agree."""
        held = self.keys[self.first : self.end]
        if held.size > most:
            held = np.random.default_rng(self.sequence).choice(held, most, replace=False)
        assert (self.view.lookup(held)[:, 0] == 1 << 2 * SLOT).all()
        assert self.view.digest(0) == self.writer.digest()
        assert self.writer.entries == self.end - self.first == self.writer.held(0, SLOT)[0]

    def _edit(self, first: int, end: int, tier: int) -> None:
        for at in range(first, end, BATCH):
            keys = self.keys[at : min(at + BATCH, end)]
            tiers = np.full(keys.size, tier, np.uint8)
            self._take(self._timed("edit of 256", lambda k=keys, t=tiers: self.writer.edit(k, 0, SLOT, t)))

    def _take(self, patches: Patches) -> None:
        first = self.sequence + 1
        self.sequence += patches.groups
        if patches.rebuilt:
            self._load()
        elif patches.groups:
            payload, groups = patches.payload, patches.groups
            result = self._timed("apply", lambda: self.view.apply(0, first, groups, payload))
            assert result.applied == groups

    def _load(self) -> None:
        self.snapshots += 1
        data = self.writer.snapshot()
        self.view.begin_snapshot(0)
        for at in range(0, len(data), 1 << 20):
            part = data[at : at + (1 << 20)]
            self._timed("add a MiB of snapshot", lambda part=part: self.view.add_snapshot(0, part))
        digest = self.writer.digest()
        self._timed("end a snapshot", lambda: self.view.end_snapshot(0, self.sequence, digest))

    def _timed(self, name: str, call: Callable[[], T]) -> T:
        """The call; notes the longest, on the processor's clock: others share the machine."""
        began = process_time_ns()
        result = call()
        took = (process_time_ns() - began) / 1e6
        self.longest_ms[name] = max(took, self.longest_ms.get(name, 0.0))
        return result


def grown_and_emptied(entries: int) -> LongChurn:
    """From a thousandth of its size to the whole by doubling, a third of it replaced on the way, and back."""
    keys = np.random.default_rng(1).integers(0, 1 << 63, 2 * entries, dtype=np.uint64)
    churn = LongChurn(keys, expected=max(1, entries // 1_000), grow_at=GROW_AT)
    part = max(BATCH, entries // 64)
    while churn.end - churn.first < entries and churn.end + part <= keys.size:
        churn.insert(part)
        churn.remove(part // 4)
        churn.check(100_000)
    churn.settle()
    churn.check()
    assert churn.writer.rebuilds == 0
    assert churn.snapshots == 1
    growths, pins = churn.writer.growths, churn.writer.pinned_ever
    churn.remove(int(0.9 * (churn.end - churn.first)))
    churn.settle()
    churn.check()
    shrinks = churn.writer.shrinks
    print(f"grew {growths} times: {pins} pins ever, no rebuild; shrank {shrinks} times")  # noqa: T201
    return churn


def turned_over(entries: int) -> LongChurn:
    """Two turnovers of a table that is 95 % full throughout."""
    keys = np.random.default_rng(2).integers(0, 1 << 63, 3 * entries, dtype=np.uint64)
    churn = LongChurn(keys, expected=int(entries * 0.85 / 0.95), grow_at=1.0)
    slots = churn.writer.slots
    churn.insert(int(0.95 * slots))
    part = max(1, slots // 100)
    while churn.end + part <= keys.size and churn.end < 2.95 * slots:
        churn.remove(part)
        churn.insert(part)
        churn.check(100_000)
    churn.check()
    assert churn.writer.slots == slots
    assert churn.writer.rebuilds == churn.writer.growths == 0
    pins, occupancy = churn.writer.pinned_ever, churn.writer.entries / slots
    print(f"two turnovers at {occupancy:.3f}: {pins} pins ever, no rebuild")  # noqa: T201
    return churn


def main() -> None:
    """Run both lives."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entries", type=float, default=1e5)
    entries = int(parser.parse_args().entries)
    warm()
    for life in (grown_and_emptied, turned_over):
        began = perf_counter_ns()
        churn = life(entries)
        print(f"  {(perf_counter_ns() - began) / 1e9:.1f} s; longest calls, ms of processor time:")  # noqa: T201
        for name, took in sorted(churn.longest_ms.items()):
            print(f"    {name:24s} {took:8.2f}")  # noqa: T201


if __name__ == "__main__":
    main()
