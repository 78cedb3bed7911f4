"""The fused match against its naive twin: contiguous runs, guards, absent shards, short prompts."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import KVCompassError
from kvcompass.index import IndexShape, IndexView, LookupUnit, ShardTables, WorkerMap
from kvcompass.kernels.jit import JIT
from kvcompass.levels import QueryPlan
from kvcompass.tier import Tier
from tests.models.index_naive import NaiveTable, NaiveWorker, naive_match


def build(
    seed: int, *, shards: int, regions: int, levels: int, hole: float, absent: Iterable[int] = ()
) -> tuple[IndexView, QueryPlan, list[NaiveWorker], np.ndarray, dict[tuple[int, int], NaiveTable]]:
    """An index that holds one prompt's levels at every worker, each with probability 1-hole."""
    rng = np.random.default_rng(seed)
    tables = regions + 1  # the last region has two
    shape = IndexShape(shards=shards, tables=tables, value_bits=32, expected_entries=30)
    workers = [
        NaiveWorker(table, int(slot), min(table, regions - 1))
        for table in range(tables)
        for slot in rng.choice(16, rng.integers(1, 5), replace=False)
    ]
    order = rng.permutation(len(workers))
    workers = [workers[i] for i in order]
    keys = rng.integers(0, 1 << 63, levels, dtype=np.uint64)
    owner = (keys >> np.uint64(31)) * np.uint64(shards) >> np.uint64(32)
    writers = [ShardTables(shape, shard, random_seed=seed) for shard in range(shards)]
    twins = {(shard, table): NaiveTable() for shard in range(shards) for table in range(tables)}
    for level, key in enumerate(keys):
        for worker in workers:
            tier = 0 if rng.random() < hole else int(rng.integers(1, 3))
            shard = int(owner[level])
            writers[shard].edit(
                keys[level : level + 1], worker.table, worker.slot, np.array([tier], np.uint8)
            )
            twins[shard, worker.table].set(int(key), worker.slot, tier)
    view = IndexView(shape)
    for shard, writer in enumerate(writers):
        if shard in absent:
            continue
        view.load_snapshot(shard, writer.snapshot(), 1, writer.digest())
    guard = np.full((regions, regions), -1, np.int32)
    queried = np.zeros((regions, regions, levels), np.bool_)
    for o in range(regions):
        for r in range(regions):
            first = int(rng.integers(0, levels + 1))
            queried[o, r, first:] = rng.random(levels - first) < 0.9
            guard[o, r] = first - 1
    rungs = np.cumsum(rng.integers(1, 9, levels)).astype(np.int32)
    return view, QueryPlan(rungs, queried, guard), workers, keys, twins


@settings(max_examples=150 if JIT else 12, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    shards=st.integers(1, 3),
    regions=st.integers(1, 3),
    levels=st.integers(1, 9),
    hole=st.sampled_from([0.0, 0.1, 0.5]),
    absent=st.sets(st.integers(0, 2), max_size=2),
    known=st.integers(0, 12),
)
def test_match_equals_the_naive_twin(
    seed: int, shards: int, regions: int, levels: int, hole: float, absent: set[int], known: int
) -> None:
    view, plan, workers, keys, twins = build(
        seed, shards=shards, regions=regions, levels=levels, hole=hole, absent=absent
    )
    owner = ((keys >> np.uint64(31)) * np.uint64(shards) >> np.uint64(32)).astype(int).tolist()
    place = WorkerMap(
        *(np.array([getattr(w, n) for w in workers], np.int32) for n in ("table", "slot", "region"))
    )
    for origin in range(regions):
        found = LookupUnit(view, plan, place, origin).match(keys[:known])
        for index, worker in enumerate(workers):
            expected = naive_match(
                twins,
                owner,
                absent,
                keys[:known].tolist(),
                plan.rungs.tolist(),
                plan.queried[origin],
                plan.guard[origin].tolist(),
                worker,
            )
            assert (int(found.match_tokens[index]), int(found.tier[index])) == expected


def test_a_guard_alone_is_no_match_and_a_missing_guard_ends_it() -> None:
    shape = IndexShape(shards=1, tables=1, value_bits=32, expected_entries=10)
    writer, view = ShardTables(shape, 0, random_seed=1), IndexView(shape)
    keys = np.array([3, 5], np.uint64)
    place = WorkerMap(*(np.array(column, np.int32) for column in ([0, 0, 0], [0, 7, 15], [0, 0, 0])))
    plan = QueryPlan(np.array([128, 256], np.int32), np.array([[[False, True]]]), np.array([[0]], np.int32))
    writer.edit(keys[:1], 0, 0, np.ones(1, np.uint8))
    writer.edit(keys[1:], 0, 7, np.ones(1, np.uint8))
    writer.edit(keys, 0, 15, np.full(2, 2, np.uint8))
    view.load_snapshot(0, writer.snapshot(), 1, writer.digest())
    found = LookupUnit(view, plan, place, 0).match(keys)
    assert found.match_tokens.tolist() == [0, 0, 256]
    assert found.tier.tolist() == [0, 0, 2]
    assert LookupUnit(view, plan, place, 0).match(keys[:1]).match_tokens.tolist() == [0, 0, 0]


def test_an_empty_view_and_an_empty_prompt_match_nothing() -> None:
    view, plan, workers, keys, _ = build(1, shards=2, regions=2, levels=5, hole=0.0)
    place = WorkerMap(
        *(np.array([getattr(w, n) for w in workers], np.int32) for n in ("table", "slot", "region"))
    )
    assert not LookupUnit(view, plan, place, 0).match(keys[:0]).match_tokens.any()
    fresh = IndexView(view.shape)
    assert not LookupUnit(fresh, plan, place, 0).match(keys).match_tokens.any()


def test_a_worker_outside_the_index_is_refused() -> None:
    view, plan, _, _, _ = build(1, shards=1, regions=1, levels=2, hole=0.0)
    for table, slot in ((2, 0), (0, 16)):
        place = WorkerMap(*(np.array([n], np.int32) for n in (table, slot, 0)))
        with pytest.raises(KVCompassError, match="outside the index's 2 tables"):
            LookupUnit(view, plan, place, 0)


def test_a_field_that_is_no_tier_counts_as_the_dearer_one() -> None:
    """Only a faulty unit sends it; nobody downstream must meet a tier that does not exist."""
    shape = IndexShape(shards=1, tables=1, value_bits=32, expected_entries=30)
    writer, view = ShardTables(shape, 0, random_seed=1), IndexView(shape)
    keys = np.array([12_345], np.uint64)
    writer.edit(keys, 0, 3, np.array([Tier.VRAM], np.uint8))
    view.load_snapshot(0, writer.snapshot(), 1, writer.digest())
    patches = writer.edit(keys, 0, 3, np.array([Tier.DRAM], np.uint8))
    words = np.frombuffer(patches.payload, "<u4").copy()
    assert patches.groups == 1 and words[-1] == Tier.DRAM << 6
    words[-1] = 3 << 6
    view.apply(0, 2, 1, words.tobytes())
    assert view.lookup(keys)[0, 0] == 3 << 6
    everything = QueryPlan(
        np.array([8], np.int32), np.ones((1, 1, 1), np.bool_), np.full((1, 1), -1, np.int32)
    )
    worker = WorkerMap(np.zeros(1, np.int32), np.array([3], np.int32), np.zeros(1, np.int32))
    matches = LookupUnit(view, everything, worker, 0).match(keys)
    assert (matches.match_tokens[0], matches.tier[0]) == (8, Tier.DRAM)
