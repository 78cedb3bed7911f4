"""Fleets of any shape in one match: groups of workers, regions and shards against the naive twin."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.index import IndexShape, IndexView, LookupUnit, Matches, ShardTables, WorkerMap
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.probes import PROBES
from kvcompass.levels import QueryPlan
from kvcompass.plan.model import RoutingRule
from kvcompass.score import JointScore, ScoreInputs, Standings, Weighed
from tests.models.index_churn import LAYOUTS, TableLayout
from tests.models.index_naive import NaiveTable, NaiveWorker, naive_match

SIZES = (1, 16, 17, 32, 33, 64, 300) if JIT else (1, 17, 33)
TABLES_MOST = 600 if JIT else 24
"""Tables of all shards in an example."""


@dataclass(frozen=True)
class Fleet:
    layout: TableLayout
    shards: int
    regions: tuple[int, ...]
    """Workers of each region."""

    @property
    def workers(self) -> list[NaiveWorker]:
        """Places as `kvcompass plan assign` gives them: a region fills a table, then opens another."""
        slots, table, placed = self.layout[1] // 2, 0, []
        for region, count in enumerate(self.regions):
            placed += [NaiveWorker(table + i // slots, i % slots, region) for i in range(count)]
            table += -(-count // slots)
        return placed


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    layout = draw(st.sampled_from(LAYOUTS))
    count = draw(st.sampled_from((1, 2, 3, 8, 64) if JIT else (1, 2, 3)))
    regions = [draw(st.sampled_from(SIZES)) for _ in range(min(count, 8))]
    regions += [draw(st.sampled_from((1, 2)))] * (count - len(regions))
    tables = sum(-(-workers // (layout[1] // 2)) for workers in regions)
    shards = draw(st.sampled_from([n for n in (1, 2, 3, 16, 64) if n * tables <= TABLES_MOST or n == 1]))
    return Fleet(layout, shards, tuple(regions))


@settings(max_examples=40 if JIT else 4, deadline=None)
@given(
    fleet=fleets(),
    seed=st.integers(0, 1 << 20),
    levels=st.integers(1, 20),
    known=st.integers(0, 21),
    absent=st.sets(st.integers(0, 3), max_size=2),
)
def test_any_fleet_matches_as_the_naive_twin(
    fleet: Fleet, seed: int, levels: int, known: int, absent: set[int]
) -> None:
    rng = np.random.default_rng(seed)
    workers = fleet.workers
    order = rng.permutation(len(workers))
    workers = [workers[i] for i in order]
    view, keys, owner, held = filled(fleet, workers, levels, absent, rng)
    plan = random_plan(len(fleet.regions), levels, rng)
    place = WorkerMap(
        *(np.array([getattr(w, n) for w in workers], np.int32) for n in ("table", "slot", "region"))
    )
    values = view.lookup(keys)
    tables = {(s, t): NaiveTable() for s in range(fleet.shards) for t in range(view.shape.tables)}
    for level, key in enumerate(keys.tolist()):
        for table, value in enumerate(values[level].tolist()):
            present = held.get((level, table), 0)
            assert value == present or not present or owner[level] in absent
            tables[owner[level], table].values[key] = value
    origin = int(rng.integers(len(fleet.regions)))
    found = LookupUnit(view, plan, place, origin).match(keys[:known])
    expected = [
        naive_match(
            tables,
            owner,
            absent,
            keys[:known].tolist(),
            plan.rungs.tolist(),
            plan.queried[origin],
            plan.guard[origin].tolist(),
            worker,
        )
        for worker in workers
    ]
    assert list(zip(found.match_tokens.tolist(), found.tier.tolist(), strict=True)) == expected
    one_call = decided(LookupUnit(view, plan, place, origin), keys[:known], None, seed)
    two_calls = decided(None, keys[:known], found, seed)
    for one, two in zip(one_call, two_calls, strict=True):
        assert np.array_equal(one, two)


def decided(lookup: LookupUnit | None, keys: np.ndarray, found: Matches | None, seed: int) -> Weighed:
    """Matches that are looked up, or already found, weighed in a random state of the fleet."""
    workers = lookup.workers if lookup is not None else len(found.tier)
    rng = np.random.default_rng(seed)
    score = JointScore(ScoreInputs(*rng.random((7, workers))), RoutingRule(), lookup)
    standings = Standings(*(rng.random((3, workers)) < 0.7))
    standings.candidate[rng.integers(workers)] = True
    expected = rng.integers(0, 20, workers).astype(np.int32)
    turn = int(rng.integers(workers))
    if lookup is not None:
        return score.match_and_weigh(keys, expected, standings, 200, turn)
    return score.weigh(found, expected, standings, 200, turn)


def filled(
    fleet: Fleet, workers: list[NaiveWorker], levels: int, absent: set[int], rng: np.random.Generator
) -> tuple[IndexView, np.ndarray, list[int], dict[tuple[int, int], int]]:
    """A view in which workers hold levels of one prompt; its keys, their shards, value of (level, table)."""
    name, bits = fleet.layout
    tables = 1 + max(worker.table for worker in workers)
    shape = IndexShape(shards=fleet.shards, tables=tables, value_bits=bits, expected_entries=12, layout=name)
    keys = rng.integers(0, 1 << 63, levels, dtype=np.uint64)
    owner = ((keys >> np.uint64(31)) * np.uint64(fleet.shards) >> np.uint64(32)).astype(int).tolist()
    writers = [ShardTables(shape, shard, random_seed=1) for shard in range(fleet.shards)]
    held: dict[tuple[int, int], int] = {}
    depths = rng.integers(0, levels + 1, len(workers)) * (rng.random(len(workers)) < 0.3)
    for worker, depth in zip(workers, depths.tolist(), strict=True):
        tiers = rng.integers(1, 3, levels) * (rng.random(levels) < 0.95) * (np.arange(levels) < depth)
        for level in np.flatnonzero(tiers).tolist():
            tier = int(tiers[level])
            one = keys[level : level + 1]
            writers[owner[level]].edit(one, worker.table, worker.slot, np.array([tier], np.uint8))
            held[level, worker.table] = held.get((level, worker.table), 0) | tier << 2 * worker.slot
    view = IndexView(shape)
    for shard, writer in enumerate(writers):
        if shard not in absent:
            view.load_snapshot(shard, writer.snapshot(), 1, writer.digest())
    return view, keys, owner, held


def random_plan(regions: int, levels: int, rng: np.random.Generator) -> QueryPlan:
    """Each region read from a rung of its own on, with holes, guarded by the rung below."""
    queried = np.zeros((regions, regions, levels), np.bool_)
    guard = np.full((regions, regions), -1, np.int32)
    for o in range(regions):
        for r in range(regions):
            first = int(rng.integers(0, levels + 1))
            queried[o, r, first:] = rng.random(levels - first) < 0.9
            guard[o, r] = first - 1
    return QueryPlan(np.cumsum(rng.integers(1, 9, levels)).astype(np.int32), queried, guard)


def test_more_tables_than_probes_are_read_in_turns() -> None:
    tables = PROBES + 3
    shape = IndexShape(shards=2, tables=tables, value_bits=32, expected_entries=4)
    keys = np.array([1, 1 << 62], np.uint64)
    view = IndexView(shape)
    for shard in range(2):
        writer = ShardTables(shape, shard, random_seed=1)
        for table in range(0, tables, 2):
            writer.edit(keys[shard : shard + 1], table, table % 16, np.ones(1, np.uint8))
        view.load_snapshot(shard, writer.snapshot(), 1, writer.digest())
    values = view.lookup(np.array([keys[1], keys[0], keys[1]]))
    assert (values == np.where(np.arange(tables) % 2, 0, 1 << 2 * (np.arange(tables) % 16))).all()
