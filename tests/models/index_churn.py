"""Churn of index tables against dicts: short runs for the laws, longer ones by hand.

python -m tests.models.index_churn --seeds 200
"""

import argparse
import random
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kvcompass.index import IndexShape, IndexView, Patches, ShardTables
from kvcompass.index.shape import TableSize
from kvcompass.index.table_arrays import new_table
from kvcompass.index.table_writer import GROW_AT
from kvcompass.kernels.state import PINNED, Table
from tests.models.index_audit import audit
from tests.models.index_naive import NaiveTable, split_groups

TableLayout = tuple[str, int]
"""`layout` and `value_bits` of an index."""
DEFAULT: TableLayout = ("fingerprints", 32)
LAYOUTS: tuple[TableLayout, ...] = (DEFAULT, ("fingerprints", 64), ("paper", 32))


@dataclass(frozen=True)
class Work:
    """What a run made the writer do."""

    moves: int
    flips: int
    pins: int
    growths: int


class Churn:
    """A writer, a view that follows it and a dict; what one takes all take."""

    def __init__(
        self,
        expected: int,
        *,
        tables: int = 1,
        seed: int = 1,
        layout: TableLayout = DEFAULT,
        grow_at: float = GROW_AT,
        each_group: bool = False,
    ) -> None:
        name, bits = layout
        shape = IndexShape(shards=1, tables=tables, value_bits=bits, expected_entries=expected, layout=name)
        self.writer = ShardTables(shape, 0, random_seed=seed, grow_at=grow_at)
        self.view = IndexView(shape)
        self.twins = [NaiveTable() for _ in range(tables)]
        self.sequence = 0
        self.each_group = each_group
        self.clearing: set[tuple[int, int]] = set()
        """(table, slot) of workers whose fields the view may still have."""
        self.load()

    @property
    def twin(self) -> NaiveTable:
        return self.twins[0]

    @property
    def work(self) -> Work:
        return Work(self.writer.moves, self.writer.flips, self.writer.pinned_ever, self.writer.growths)

    def load(self) -> None:
        """Takes a snapshot, once there is one; what the writer does until then the view need not see."""
        while self.writer.is_growing:
            self.sequence += self.writer.step().groups
        self.view.load_snapshot(0, self.writer.snapshot(), self.sequence, self.writer.digest())

    def edit(self, keys: np.ndarray, slot: int, tiers: np.ndarray, table: int = 0) -> Patches:
        patches = self.writer.edit(keys, table, slot, tiers)
        self.take(patches, table, set(keys.tolist()))
        for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True):
            self.twins[table].set(key, slot, tier)
        return patches

    def edit_one(self, key: int, slot: int, tier: int) -> Patches:
        return self.edit(np.array([key], np.uint64), slot, np.array([tier], np.uint8))

    def begin_clearing(self, slot: int, table: int = 0) -> None:
        """The view may go on naming this worker until `settle`, and nobody else wrongly."""
        self.writer.clear_worker(table, slot)
        self.twins[table].clear(slot)
        self.clearing.add((table, slot))

    def end_report(self, slot: int, named: set[int], table: int = 0) -> None:
        """A report that named so much has ended; the view may go on naming the rest until `settle`."""
        self.writer.end_report(table, slot)
        for key in self.twins[table].holdings(slot).keys() - named:
            self.twins[table].set(key, slot, 0)
        self.clearing.add((table, slot))
        self._forget_cleared()

    def clear(self, slot: int, table: int = 0) -> None:
        self.begin_clearing(slot, table)
        self.settle()

    def step(self) -> bool:
        """A part of what is left to do; whether there is more."""
        self.take(self.writer.step())
        return self.writer.is_busy

    def settle(self) -> None:
        """All that is left to do."""
        while self.step():
            pass

    def assert_exact(self, *, but: tuple[int, set[int]] = (0, set())) -> None:
        """Every key of the twins has its value, but some of a table; fields being withdrawn may linger."""
        for table, twin in enumerate(self.twins):
            changing = but[1] if but[0] == table else set()
            held = {key: value for key, value in twin.values.items() if key not in changing}
            cleared = sum(3 << 2 * slot for at, slot in self.clearing if at == table)
            exact = np.array(list(held.values()), np.uint64)
            set_fields = ((exact | exact >> np.uint64(1)) & np.uint64(0x5555555555555555)) * np.uint64(3)
            values = self.view.lookup(np.array(list(held), np.uint64))[:, table]
            assert (values & (~np.uint64(cleared) | set_fields)).tolist() == exact.tolist()

    def empty(self) -> None:
        """Withdraws everything; no pin may be left then."""
        for key in list(self.twin.values):
            self.edit_one(key, 0, 0)
        assert self.writer.entries == self.writer.pinned == 0

    def empty_of(self, slot: int) -> None:
        """Withdraws a worker key by key."""
        for key in list(self.twin.holdings(slot)):
            self.edit_one(key, slot, 0)

    def take(self, patches: Patches, table: int = 0, changing: Iterable[int] = ()) -> None:
        """Applies patches; if `each_group`, between any two of them all keys but those changing are exact."""
        first = self.sequence + 1
        self.sequence += patches.groups
        if patches.rebuilt:
            self.load()
            self._forget_cleared()
            return
        groups = split_groups(patches.payload)
        assert len(groups) == patches.groups
        runs = [[group] for group in groups] if self.each_group else [groups]
        for run in runs:
            result = self.view.apply(0, first, len(run), b"".join(run))
            assert (result.applied, result.refused_old, result.gap) == (len(run), 0, False)
            first += len(run)
            if self.each_group:
                self.assert_exact(but=(table, set(changing)))
        self._forget_cleared()
        assert self.view.applied_sequence(0) == self.sequence
        assert self.view.digest(0) == self.writer.digest()

    def _forget_cleared(self) -> None:
        busy = (self.writer.is_clearing, self.writer.is_reporting)
        self.clearing = {place for place in self.clearing if any(is_so(*place) for is_so in busy)}


def keys_of(count: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 63, count, dtype=np.uint64)


def nearly_full(seed: int, *, expected: int, turnovers: int, layout: TableLayout = DEFAULT) -> Work:
    """95 % of the slots are taken throughout: long cuckoo paths and flips."""
    churn = Churn(expected, seed=seed, layout=layout, grow_at=1.0)
    count = int(0.95 * churn.writer.slots)
    keys = keys_of(count * (1 + turnovers), seed).tolist()
    for number, key in enumerate(keys):
        churn.edit_one(key, 0, 1)
        if number >= count:
            churn.edit_one(keys[number - count], 0, 0)
        if number % (1 + count // 4) == 0:
            churn.assert_exact()
            audit(churn.writer)
    churn.assert_exact()
    churn.empty()
    return churn.work


def crowded(seed: int, *, edits: int, layout: TableLayout = DEFAULT) -> Work:
    """With too few Othello nodes most edges close cycles: bits are decided and moves refused all the time."""
    churn = Churn(1, seed=seed, layout=layout)
    nodes = 24 + seed % 60
    size = TableSize(buckets=27, nodes_a=nodes, nodes_b=nodes, layout=churn.writer.shape.table_layout)
    (writer,) = churn.writer._tables
    writer.lay(new_table(size, 0, seed, writer.table.workers), writer.wide)
    churn.load()
    rng = random.Random(seed)
    for key in keys_of(edits, seed).tolist():
        churn.edit_one(key, 0, 1)
        if churn.writer.rebuilds or churn.writer.growths > 1:
            break
        if len(churn.twin.values) > 88:
            churn.edit_one(rng.choice(list(churn.twin.values)), 0, 0)
        churn.assert_exact()
    churn.assert_exact()
    audit(churn.writer)
    churn.empty()
    return churn.work


def growing(seed: int, *, edits: int, layout: TableLayout = DEFAULT) -> Work:
    """A table doubles again and again while it is edited and cleared; looked at after each group."""
    churn = Churn(1, seed=seed, layout=layout, each_group=True)
    rng = random.Random(seed)
    keys = keys_of(edits, seed).tolist()
    slots = churn.writer.shape.worker_slots
    for number, key in enumerate(keys):
        churn.edit_one(key, rng.randrange(slots), rng.randrange(1, 3))
        if churn.writer.is_growing and rng.random() < 0.7:
            gone = rng.choice(list(churn.twin.values))
            for slot in range(slots):
                if churn.twin.values.get(gone, 0) >> 2 * slot & 3:
                    churn.edit_one(gone, slot, 0)
        choice = rng.random()
        if choice < 0.3:
            churn.edit_one(rng.choice(keys[: number + 1]), rng.randrange(slots), rng.randrange(3))
        elif choice < 0.33:
            churn.begin_clearing(rng.randrange(slots))
        elif choice < 0.5:
            churn.step()
        churn.assert_exact()
        if number % 10 == 0:
            audit(churn.writer)
    churn.settle()
    churn.assert_exact()
    audit(churn.writer)
    for slot in range(slots):
        keys_held, tiers = churn.writer.holdings(0, slot)
        assert dict(zip(keys_held.tolist(), tiers.tolist(), strict=True)) == churn.twin.holdings(slot)
    return churn.work


def parted(seed: int, *, expected: int) -> Work:
    """Fills a table while some pins lie between two trees, as removals in very large trees may leave them."""
    churn = Churn(expected, seed=seed)
    table = churn.writer._tables[0].table
    count = int(0.97 * churn.writer.slots)
    keys = keys_of(count, seed).tolist()
    for number, key in enumerate(keys):
        churn.edit_one(key, 0, 1)
        if number == int(0.8 * count):
            for edge in table.slot_entry[table.slot_entry > 0][:60:3].tolist():
                _part(table, edge - 1)
    churn.assert_exact()
    return churn.work


def _part(table: Table, edge: int) -> None:
    """Makes a pin of a linked edge."""
    if not table.edges[edge].any() or edge in table.pins[: int(table.counts[PINNED])]:
        return
    for side in (0, 1):
        holder, at = table.heads, int(table.edges[edge, side])
        while holder[at] not in (edge + 1, 0):
            holder, at = table.edges[:, 2 + side], int(holder[at]) - 1
        if not holder[at]:
            return  # a key with one candidate bucket
        holder[at] = table.edges[edge, 2 + side]
    table.pins[table.counts[PINNED]] = edge
    table.counts[PINNED] += 1


def main() -> None:
    """Run many seeds; any fault is an AssertionError."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=200)
    seeds = parser.parse_args().seeds
    for seed in range(seeds):
        full = nearly_full(seed, expected=40 + 30 * (seed % 60), turnovers=4)
        pins = crowded(seed, edits=300)
        parted(seed, expected=200)
        grown = growing(seed, edits=300)
        print(f"seed {seed}: nearly full {full}, crowded {pins}, growing {grown}")  # noqa: T201


if __name__ == "__main__":
    main()
