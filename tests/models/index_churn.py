"""Churn of index tables against dicts: short runs for the laws, longer ones by hand.

python -m tests.models.index_churn --seeds 200
"""

import argparse
import random
from dataclasses import dataclass

import numpy as np

from kvcompass.index import IndexShape, IndexView, Patches, ShardTables
from kvcompass.index.shape import TableSize
from kvcompass.index.shard_tables import new_table
from kvcompass.kernels.state import PINNED, Table
from tests.models.index_audit import audit
from tests.models.index_naive import NaiveTable

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


class Churn:
    """A writer, a view that follows it and a dict; what one takes all take."""

    def __init__(
        self, expected: int, *, tables: int = 1, seed: int = 1, layout: TableLayout = DEFAULT
    ) -> None:
        name, bits = layout
        shape = IndexShape(shards=1, tables=tables, value_bits=bits, expected_entries=expected, layout=name)
        self.writer, self.view = ShardTables(shape, 0, random_seed=seed), IndexView(shape)
        self.twins = [NaiveTable() for _ in range(tables)]
        self.sequence = 0
        self.load()

    @property
    def twin(self) -> NaiveTable:
        return self.twins[0]

    @property
    def work(self) -> Work:
        return Work(self.writer.moves, self.writer.flips, self.writer.pinned_ever)

    def load(self) -> None:
        self.view.load_snapshot(0, self.writer.snapshot(), self.sequence, self.writer.digest())

    def edit(self, keys: np.ndarray, slot: int, tiers: np.ndarray, table: int = 0) -> Patches:
        patches = self.writer.edit(keys, table, slot, tiers)
        self._take(patches)
        for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True):
            self.twins[table].set(key, slot, tier)
        return patches

    def edit_one(self, key: int, slot: int, tier: int) -> None:
        self.edit(np.array([key], np.uint64), slot, np.array([tier], np.uint8))

    def clear(self, slot: int, table: int = 0) -> None:
        self._take(self.writer.clear_worker(table, slot))
        self.twins[table].clear(slot)

    def assert_exact(self) -> None:
        for table, twin in enumerate(self.twins):
            keys = np.array(list(twin.values), np.uint64)
            assert self.view.lookup(keys)[:, table].tolist() == list(twin.values.values())

    def empty(self) -> None:
        """Withdraws everything; no pin may be left then."""
        for key in list(self.twin.values):
            self.edit_one(key, 0, 0)
        assert self.writer.entries == self.writer.pinned == 0

    def _take(self, patches: Patches) -> None:
        self.sequence += patches.groups
        if patches.rebuilt:
            self.load()
            return
        result = self.view.apply(0, self.sequence - patches.groups + 1, patches.groups, patches.payload)
        assert (result.applied, result.refused_old, result.gap) == (patches.groups, 0, False)
        assert self.view.applied_sequence(0) == self.sequence
        assert self.view.digest(0) == self.writer.digest()


def keys_of(count: int, seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 63, count, dtype=np.uint64)


def nearly_full(seed: int, *, expected: int, turnovers: int, layout: TableLayout = DEFAULT) -> Work:
    """94 % of the slots are taken throughout: long cuckoo paths and flips."""
    churn = Churn(expected, seed=seed, layout=layout)
    count = int(0.94 * churn.writer.slots)
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
    churn.writer._tables = [new_table(size, 0, salt=seed)]
    churn.load()
    rng = random.Random(seed)
    for key in keys_of(edits, seed).tolist():
        churn.edit_one(key, 0, 1)
        if churn.writer.rebuilds:
            break
        if len(churn.twin.values) > 88:
            churn.edit_one(rng.choice(list(churn.twin.values)), 0, 0)
        churn.assert_exact()
    churn.assert_exact()
    audit(churn.writer)
    churn.empty()
    return churn.work


def parted(seed: int, *, expected: int) -> Work:
    """Fills a table while some pins lie between two trees, as removals in very large trees may leave them."""
    churn = Churn(expected, seed=seed)
    (table,) = churn.writer._tables
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
        print(f"seed {seed}: nearly full {full}, crowded {pins}")  # noqa: T201


if __name__ == "__main__":
    main()
