"""A shard's life: whatever may happen to its tables happens in any order, in the middle of everything else.

python -m tests.models.index_life --seeds 100
"""

import argparse
from dataclasses import dataclass

import numpy as np

from kvcompass.index import IndexView
from tests.models.index_audit import audit
from tests.models.index_churn import DEFAULT, LAYOUTS, Churn, TableLayout, keys_of

TABLES = 2


@dataclass
class Lived:
    """What has come about in some lives."""

    growths: int = 0
    shrinks: int = 0
    loads: int = 0
    snapshots: int = 0
    clears: int = 0
    reports: int = 0
    """Ended with something to withdraw."""

    def add(self, other: "Lived") -> None:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)


class ShardLife:
    """A writer that is edited, loaded, cleared, stepped and copied; views that begin anew at any copy."""

    def __init__(self, seed: int, layout: TableLayout = DEFAULT) -> None:
        self.rng = np.random.default_rng(seed)
        expected = int(self.rng.choice([1, 20, 60]))
        self.churn = Churn(
            expected, tables=TABLES, seed=1 + seed, layout=layout, each_group=self.rng.random() < 0.3
        )
        self.keys = keys_of(700, seed)
        slots = self.churn.writer.shape.worker_slots
        self.workers = [0, 3, slots - 1]
        self.lived = Lived()
        self.named: dict[tuple[int, int], set[int]] = {}
        """What workers hold whose reports are open, by table and slot."""

    def live(self, events: int) -> Lived:
        """Exact after each event, and sound to the last link at the end."""
        kinds = [self.fill, self.withdraw, self.clear, self.step, self.copy, self.load, self.report]
        for _ in range(events):
            kind = self.rng.choice(len(kinds), p=[0.28, 0.2, 0.05, 0.3, 0.07, 0.02, 0.08])
            kinds[kind](int(self.rng.integers(TABLES)), int(self.rng.choice(self.workers)))
            self.churn.assert_exact()
        audit(self.churn.writer)
        self.churn.settle()
        self.churn.assert_exact()
        audit(self.churn.writer)
        for table, twin in enumerate(self.churn.twins):
            for slot in self.workers:
                keys, tiers = self.churn.writer.holdings(table, slot)
                assert dict(zip(keys.tolist(), tiers.tolist(), strict=True)) == twin.holdings(slot)
        assert self.churn.writer.entries == sum(len(twin.values) for twin in self.churn.twins)
        self.lived.growths, self.lived.shrinks = self.churn.writer.growths, self.churn.writer.shrinks
        return self.lived

    def fill(self, table: int, slot: int) -> None:
        keys = self.rng.choice(self.keys, int(self.rng.integers(1, 60)))
        self.named.get((table, slot), set()).update(keys.tolist())
        self.churn.edit(keys, slot, self.rng.integers(1, 3, keys.size).astype(np.uint8), table)

    def withdraw(self, table: int, slot: int) -> None:
        """Some or most of a worker's keys, so that tables shrink too."""
        held = np.array(list(self.churn.twins[table].holdings(slot)), np.uint64)
        gone = self.rng.permutation(held)[: int(self.rng.choice([3, 400, 400]))]
        self.named.get((table, slot), set()).difference_update(gone.tolist())
        self.churn.edit(gone, slot, np.zeros(gone.size, np.uint8), table)

    def clear(self, table: int, slot: int) -> None:
        self.churn.begin_clearing(slot, table)
        self.named.pop((table, slot), None)
        self.lived.clears += 1

    def step(self, _table: int, _slot: int) -> None:
        for _ in range(int(self.rng.choice([1, 1, 5, 15]))):
            self.churn.step()

    def copy(self, _table: int, _slot: int) -> None:
        """A new view takes the copy; what had begun goes on before its eyes."""
        churn = self.churn
        if churn.writer.is_growing:
            return
        frozen = churn.writer.freeze()
        while not frozen.is_whole:
            frozen.step()
        churn.view = IndexView(churn.writer.shape)
        churn.view.load_snapshot(0, frozen.read(0, frozen.size), churn.sequence, frozen.digest)
        assert churn.view.digest(0) == churn.writer.digest()
        self.lived.snapshots += 1

    def report(self, table: int, slot: int) -> None:
        """A full report begins, ends with what was edited since, or is dropped."""
        if self.named and self.rng.random() < 0.8:
            table, slot = next(iter(self.named))
        writer, named = self.churn.writer, self.named.pop((table, slot), None)
        if named is None and writer.is_reporting(table, slot):
            return  # the twin has withdrawn all that the last one did not name, and the writer has not
        if named is None:
            writer.begin_report(table, slot)
            self.named[table, slot] = set()
        elif self.rng.random() < 0.2:
            writer.drop_report(table, slot)
        else:
            self.churn.end_report(slot, named, table)
            self.lived.reports += writer.is_reporting(table, slot)

    def load(self, table: int, slot: int) -> None:
        """Many edits that are made by building the table anew."""
        keys = self.rng.choice(self.keys, int(self.rng.integers(1, 300)))
        tiers = self.rng.integers(0, 3, keys.size).astype(np.uint8)
        self.churn.take(self.churn.writer.load(keys, table, slot, tiers), table, keys.tolist())
        named = self.named.get((table, slot), set())
        for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True):
            self.churn.twins[table].set(key, slot, tier)
            (named.add if tier else named.discard)(key)
        self.lived.loads += 1


def main() -> None:
    """Live many lives; any fault is an AssertionError."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=100)
    for seed in range(parser.parse_args().seeds):
        print(f"seed {seed}: {ShardLife(seed, LAYOUTS[seed % len(LAYOUTS)]).live(90)}")  # noqa: T201


if __name__ == "__main__":
    main()
