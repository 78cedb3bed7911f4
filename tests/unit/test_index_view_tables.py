"""Where a view keeps its tables: plans one version apart, and growth that leaves the other tables alone."""

import numpy as np
import pytest

from kvcompass.errors import ProtocolError
from kvcompass.index import IndexShape, IndexView, LookupUnit, ShardTables, WorkerMap, arena
from kvcompass.index.frozen_shard import FrozenShard
from kvcompass.index.image_bytes import digest_of, new_image
from kvcompass.index.layout import table_layout
from kvcompass.index.shape import table_size
from kvcompass.kernels.image import BASE
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.patch_records import VALUE
from kvcompass.levels import QueryPlan

KEYS = np.random.default_rng(3).integers(0, 1 << 63, 400 if JIT else 60, dtype=np.uint64)
SHARDS = 3
LAYOUT = table_layout("fingerprints", 32)
OWNER = ((KEYS >> np.uint64(31)) * np.uint64(SHARDS) >> np.uint64(32)).astype(int)


def shape(tables: int, expected: int = 60) -> IndexShape:
    return IndexShape(shards=SHARDS, tables=tables, value_bits=32, expected_entries=expected)


def filled(shard: int, tables: int) -> ShardTables:
    """Table t holds the shard's keys at slot t, all but the last."""
    writer = ShardTables(shape(tables, KEYS.size // 2), shard, random_seed=shard)
    for table in range(tables):
        own = KEYS[shard == OWNER][:-1]
        writer.edit(own, table, table, np.ones(own.size, np.uint8))
    return writer


def expected(tables: int, held: list[int]) -> np.ndarray:
    """Values of all keys in `tables` tables when shard s holds held[s] of them."""
    values = np.zeros((KEYS.size, tables), np.uint64)
    for shard, has in enumerate(held):
        for table in range(min(tables, has)):
            values[np.flatnonzero(shard == OWNER)[:-1], table] = 1 << 2 * table
    return values


@pytest.mark.parametrize("order", [[2, 1, 3], [3, 2, 1], [1, 3, 2], [2, 2, 4]])
def test_units_whose_plans_have_other_tables_are_followed(order: list[int]) -> None:
    """The view's plan has two tables; each shard's unit has its own number, and then another."""
    view = IndexView(shape(2))
    for held in (order, order[::-1], [2, 2, 2], order):
        writers = [filled(shard, tables) for shard, tables in enumerate(held)]
        for shard, writer in enumerate(writers):
            view.load_snapshot(shard, writer.snapshot(), 7, writer.digest())
        assert (view.lookup(KEYS) == expected(2, held)).all()
        for shard, writer in enumerate(writers):
            last = KEYS[shard == OWNER][-1:]
            patches = writer.edit(last, held[shard] - 1, 15, np.full(1, 2, np.uint8))
            assert view.apply(shard, 8, patches.groups, patches.payload).applied == patches.groups == 1
            assert view.digest(shard) == writer.digest()
            if held[shard] <= 2:
                assert view.lookup(last)[0, held[shard] - 1] == 2 << 30
        matches = match(view, tables=2)
        for level, key_owner in enumerate(OWNER[:8]):
            assert (matches[:, level] > 0).tolist() == [table < held[key_owner] for table in range(2)]


def match(view: IndexView, tables: int) -> np.ndarray:
    """Tokens matched of each of the first eight keys alone, int32[tables, 8]."""
    place = np.arange(tables, dtype=np.int32)
    unit = LookupUnit(
        view,
        QueryPlan(np.array([128], np.int32), np.ones((1, 1, 1), np.bool_), np.full((1, 1), -1, np.int32)),
        WorkerMap(place, place, np.zeros(tables, np.int32)),
        0,
    )
    return np.array([unit.match(KEYS[i : i + 1]).match_tokens for i in range(8)]).T


def test_patches_of_a_table_that_the_shard_lacks_are_refused() -> None:
    view, writer = IndexView(shape(3)), filled(1, 2)
    view.load_snapshot(1, writer.snapshot(), 7, writer.digest())
    payload = np.array([5, 1, VALUE | 2 << 8, 0, 1], "<u4").tobytes()
    with pytest.raises(ProtocolError):
        view.apply(1, 8, 1, payload)
    assert (view.lookup(KEYS) == expected(3, [0, 2, 0])).all()


@pytest.mark.parametrize("addresses", [1, 1 << 36])
def test_a_snapshot_moves_its_shard_and_seldom_the_others(
    addresses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena, "_ADDRESSES", addresses)
    tables, rounds = 4, 7 if JIT else 2
    view = IndexView(shape(tables))
    arenas, growths = [view.words], 0
    for doubled in range(rounds):
        for shard in range(SHARDS):
            for table in range(tables):
                bases = view.directory[:, BASE].copy()
                sizes = [20 << doubled + (other <= table) for other in range(tables)]
                snapshot, digest = sized(shard, sizes)
                view.load_snapshot(shard, snapshot, 1, digest)
                growths += 1
                if view.words is arenas[-1]:
                    moved = np.flatnonzero(view.directory[:, BASE] != bases)
                    assert moved.tolist() == [shard * tables + t for t in range(tables)]
                else:
                    arenas.append(view.words)
    assert growths == rounds * SHARDS * tables
    assert len(arenas) <= (3 + growths // 4 if addresses == 1 else 1)
    assert view.used_bytes <= view.words.nbytes


def sized(shard: int, sizes: list[int]) -> tuple[bytes, int]:
    """A snapshot of empty tables for so many entries each."""
    images = [new_image(table_size(size, LAYOUT), table, shard) for table, size in enumerate(sizes)]
    frozen = FrozenShard(images)
    while not frozen.is_whole:
        frozen.step()
    assert frozen.digest == digest_of(images)
    return frozen.read(0, frozen.size), frozen.digest


def test_tables_that_a_unit_opens_reach_a_view_whose_plan_has_them_by_a_snapshot() -> None:
    """Before and after, everything that was held is found; a table that the unit lacks reads as empty."""
    view, writers = IndexView(shape(2)), [filled(shard, 2) for shard in range(SHARDS)]
    for shard, writer in enumerate(writers):
        view.load_snapshot(shard, writer.snapshot(), 7, writer.digest())
    view.apply_shape(shape(4))
    assert (view.lookup(KEYS)[:, :2] == expected(2, [2, 2, 2])).all()
    assert not view.lookup(KEYS)[:, 2:].any()
    for shard, writer in enumerate(writers):
        assert not writer.open_tables(2).rebuilt
        assert writer.open_tables(4).rebuilt
        own = KEYS[shard == OWNER][:-1]
        for table in (2, 3):
            writer.edit(own, table, table, np.ones(own.size, np.uint8))
        view.load_snapshot(shard, writer.snapshot(), 9, writer.digest())
    assert (view.lookup(KEYS) == expected(4, [4, 4, 4])).all()
    view.apply_shape(shape(2))
    assert view.lookup(KEYS).shape[1] == 4, "a view never reads fewer tables"


def test_a_seat_without_a_place_matches_nothing() -> None:
    view, writers = IndexView(shape(2)), [filled(shard, 2) for shard in range(SHARDS)]
    for shard, writer in enumerate(writers):
        view.load_snapshot(shard, writer.snapshot(), 7, writer.digest())
    rungs = np.arange(1, KEYS.size, dtype=np.int32)
    query = QueryPlan(rungs, np.ones((1, 1, rungs.size), np.bool_), np.full((1, 1), -1, np.int32))
    key = KEYS[OWNER == 0][:1]
    seats = WorkerMap(*(np.array(column, np.int32) for column in ([0, 1, -1], [0, 1, -1], [0, 0, 0])))
    assert LookupUnit(view, query, seats, 0).match(key).match_tokens.tolist() == [1, 1, 0]
    vacant = WorkerMap(*(np.array(column, np.int32) for column in ([-1, 1, 0], [-1, 1, 3], [0, 0, 0])))
    assert LookupUnit(view, query, vacant, 0).match(key).match_tokens.tolist() == [0, 1, 0]
