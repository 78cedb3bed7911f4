"""Laws of writer and view against a dict: exact for every present key, whatever was edited or lost."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import KVCompassError, ProtocolError
from kvcompass.index import IndexShape, IndexView, Patches, ShardTables, table_writer
from kvcompass.index.layout import table_layout
from kvcompass.index.patches import PatchRun
from kvcompass.index.shape import table_size
from kvcompass.kernels.hashing import mix_bucket, mix_node
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.state import PIN_LIMIT, PINNED, WALK_LIMIT
from tests.models.index_churn import (
    DEFAULT,
    LAYOUTS,
    Churn,
    TableLayout,
    crowded,
    keys_of,
    nearly_full,
    parted,
)
from tests.models.index_naive import NaiveTable, split_groups

EXAMPLES = 60 if JIT else 5
SCALE = 1 if JIT else 80
"""How many times smaller the seeded runs are when interpreted."""

Edit = tuple[int, int, int]
"""Key number, slot, tier."""
edits = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 15), st.integers(0, 2)), max_size=120)
layouts = st.sampled_from(LAYOUTS)


def slot_in(layout: TableLayout, slot: int) -> int:
    """One of 0..15, spread over all slots the layout has."""
    return slot * (layout[1] // 32) + slot % 2 * (layout[1] == 64)


def writer_and_view(
    expected: int, *, tables: int = 1, seed: int = 1, layout: TableLayout = DEFAULT
) -> tuple[ShardTables, IndexView]:
    name, bits = layout
    shape = IndexShape(shards=1, tables=tables, value_bits=bits, expected_entries=expected, layout=name)
    writer, view = ShardTables(shape, 0, random_seed=seed), IndexView(shape)
    view.load_snapshot(0, writer.snapshot(), 0, writer.digest())
    return writer, view


def edit_one(writer: ShardTables, key: int, slot: int, tier: int) -> Patches:
    return writer.edit(np.array([key], np.uint64), 0, slot, np.array([tier], np.uint8))


def assert_exact(view: IndexView, twin: NaiveTable) -> None:
    keys = np.array(list(twin.values), np.uint64)
    assert view.lookup(keys)[:, 0].tolist() == list(twin.values.values())


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    layout=layouts,
    expected=st.integers(1, 200),
    batches=st.lists(st.tuples(st.integers(0, 15), edits), max_size=6),
)
def test_view_is_exact_between_any_two_groups(
    layout: TableLayout, expected: int, batches: list[tuple[int, list[Edit]]]
) -> None:
    keys = keys_of(301)
    churn = Churn(expected, layout=layout, each_group=True)
    for slot, batch in batches:
        at = np.array([keys[number] for number, _, _ in batch], np.uint64)
        tiers = np.array([tier for _, _, tier in batch], np.uint8)
        churn.edit(at, slot_in(layout, slot), tiers)
        churn.assert_exact()
        for number, one_slot, tier in batch[:9]:
            churn.edit_one(int(keys[number]), slot_in(layout, one_slot), tier)
            churn.assert_exact()
        assert churn.writer.entries == len(churn.twin.values)


@settings(max_examples=EXAMPLES, deadline=None)
@given(layout=layouts, expected=st.integers(1, 200), batch=edits, which=st.integers(0, 15))
def test_clearing_a_worker_is_withdrawing_all_its_keys(
    layout: TableLayout, expected: int, batch: list[Edit], which: int
) -> None:
    keys = keys_of(301)
    churn = Churn(expected, layout=layout)
    cleared = slot_in(layout, which)
    for number, slot, tier in batch:
        churn.edit_one(keys[number], slot_in(layout, slot), tier)
    churn.clear(cleared)
    churn.assert_exact()
    assert churn.writer.entries == len(churn.twin.values)
    assert churn.writer.holdings(0, cleared)[0].size == 0
    gone = np.array([k for k in keys.tolist() if k not in churn.twin.values], np.uint64)
    assert not (churn.view.lookup(gone)[:, 0] >> np.uint64(2 * cleared) & np.uint64(3)).any()


def unmixed(mixes: list[int], shifts: tuple[int, int, int], factors: tuple[int, int]) -> list[int]:
    """Keys of these mixes: x ^= x >> s0; x *= f0; x ^= x >> s1; x *= f1; x ^= x >> s2, each step undone."""

    def unshift(x: int, by: int) -> int:
        y = x
        for _ in range(64 // by):
            y = x ^ (y >> by)
        return y

    keys = []
    for mix in mixes:
        x = unshift(mix, shifts[2])
        for shift, factor in zip(shifts[1::-1], factors[::-1], strict=True):
            x = unshift(x * pow(factor, -1, 2**64) % 2**64, shift)
        keys.append(x)
    return keys


@pytest.mark.parametrize("half", ["lower", "upper"])
@pytest.mark.parametrize("mix", ["bucket", "node"])
def test_keys_whose_mixes_share_a_half_are_keys_like_any_others(mix: str, half: str) -> None:
    """Whoever chooses keys does not know a table's salt, and cannot lay thousands on one node or bucket."""
    mixed, shifts, factors = {
        "bucket": (mix_bucket, (33, 33, 33), (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53)),
        "node": (mix_node, (30, 27, 31), (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)),
    }[mix]
    count = 3 * WALK_LIMIT if JIT else 300
    varying = np.random.default_rng(1).integers(0, 1 << 32, 3 * count).tolist()
    wanted = [(v << 32) | 77 if half == "lower" else (77 << 32) | v for v in varying]
    keys = np.array([key for key in unmixed(wanted, shifts, factors) if key < 1 << 63][:count], np.uint64)
    assert keys.size == count
    share = (mixed(keys[0]), mixed(keys[1]))
    assert int(share[0] ^ share[1]) & (0xFFFFFFFF if half == "lower" else 0xFFFFFFFF << 32) == 0
    churn = Churn(count)
    for start in range(0, count, 250):
        part = keys[start : start + 250]
        churn.edit(part, 0, np.ones(part.size, np.uint8))
    churn.assert_exact()
    assert churn.writer.rebuilds == churn.writer.growths == 0
    buckets = churn.writer._tables[0].table.slot_key.reshape(-1, 4)
    assert np.unique(buckets[buckets.all(axis=1)], axis=0).shape[0] > count // 8


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_workers_are_cleared_in_the_scan_that_one_takes(
    layout: TableLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "_SLICE", 5)
    slots = range(slot_in(layout, 15) + 1)
    keys = keys_of(300)
    steps, work = {}, {}
    for cleared in (slots[:1], slots[1:]):
        churn = Churn(keys.size, layout=layout)
        for slot in slots:
            churn.edit(keys[slot::3], slot, np.ones(keys[slot::3].size, np.uint8))
        for slot in cleared:
            churn.begin_clearing(slot)
            assert churn.writer.held(0, slot) == (0, 0)
        patches = churn.writer.step()
        churn.take(patches)
        steps[len(cleared)], work[len(cleared)] = 1, patches.work
        while churn.writer.is_busy:
            churn.step()
            churn.assert_exact()
            steps[len(cleared)] += 1
        assert churn.writer.entries == len(churn.twin.values)
        assert not any(churn.writer.is_clearing(0, slot) for slot in slots)
    one, many = steps
    assert steps[one] == steps[many] > 10
    assert work[many] == 5 * many // table_writer._CLEAR_WORK


@pytest.mark.parametrize("seed", range(20 if JIT else 2))
def test_a_worker_that_joins_a_scan_in_its_middle_is_cleared_whole(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_writer, "_SLICE", 3)
    rng, churn, keys = np.random.default_rng(seed), Churn(100, each_group=True), keys_of(260, seed)
    for slot in range(4):
        churn.edit(keys[slot : 100 + slot], slot, np.ones(100, np.uint8))
    for slot in rng.permutation(4)[:3].tolist():
        churn.begin_clearing(slot)
        for _ in range(int(rng.integers(0, 9))):
            churn.step()
            churn.edit_one(int(rng.choice(keys)), 9, int(rng.integers(0, 3)))  # moves keys past the scan
            churn.assert_exact()
    churn.settle()
    churn.assert_exact()
    assert churn.writer.entries == len(churn.twin.values)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(3 if JIT else 1))
def test_churn_across_tables(seed: int, layout: TableLayout) -> None:
    rng = np.random.default_rng(seed)
    keys = keys_of(max(60, 3000 // SCALE), seed)
    churn = Churn(max(20, 800 // SCALE), tables=3, seed=seed, layout=layout)
    slots = churn.writer.shape.worker_slots
    for step in range(120 // min(SCALE, 4)):
        count = int(rng.integers(0, 120 // min(SCALE, 6)))
        table, slot = int(rng.integers(0, 3)), int(rng.integers(0, slots))
        churn.edit(rng.choice(keys, count), slot, rng.integers(0, 3, count).astype(np.uint8), table)
        if step % 17 == 3:
            churn.clear(slot, table)
        churn.assert_exact()
    assert churn.writer.entries == sum(len(twin.values) for twin in churn.twins)
    assert churn.work.flips > 0
    assert churn.work.moves > 0 or not JIT
    for number, twin in enumerate(churn.twins):
        for slot in range(slots):
            held, tiers = churn.writer.holdings(number, slot)
            assert dict(zip(held.tolist(), tiers.tolist(), strict=True)) == twin.holdings(slot)


@pytest.mark.parametrize("expected", [1, 2, 5, 11, 12, 13, 47, 100, 200] if JIT else [1, 13, 47])
def test_small_tables_turn_over_without_growing_much(expected: int) -> None:
    churn = Churn(expected, seed=expected)
    keys = keys_of(expected * (20 if JIT else 2), expected)
    for number, key in enumerate(keys.tolist()):
        churn.edit_one(key, 3, 1)
        if number >= expected:
            churn.edit_one(int(keys[number - expected]), 3, 0)
        if number % (1 + expected // 10) == 0:
            churn.assert_exact()
    assert churn.writer.entries == len(churn.twin.values) == expected
    assert churn.writer.slots <= 8 * max(12, expected)


@pytest.mark.parametrize("seed", range(8 if JIT else 1))
def test_turnover_of_a_nearly_full_table(seed: int) -> None:
    expected, turnovers = (100 + 120 * seed, 3) if JIT else (60, 1)
    work = nearly_full(seed, expected=expected, turnovers=turnovers, layout=LAYOUTS[seed % len(LAYOUTS)])
    assert work.moves > 0
    assert work.flips > 0


def test_crowded_graphs_are_full_of_pins() -> None:
    """Bits are decided and moves refused; what a table does at all, the seeds together do."""
    done = [
        crowded(seed, edits=200 if JIT else 100, layout=LAYOUTS[seed % len(LAYOUTS)])
        for seed in range(40 if JIT else 4)
    ]
    assert all(work.pins > 0 for work in done)
    assert sum(work.moves for work in done) > 0
    assert sum(work.flips for work in done) > 0


def test_pins_that_large_trees_left_between_two_stay_exact() -> None:
    done = [parted(seed, expected=60 + 140 * (seed % 2)) for seed in range(40 if JIT else 2)]
    assert sum(work.moves for work in done) > 0
    assert sum(work.flips for work in done) > 0


@pytest.mark.parametrize("expected", [1, 60, 400] if JIT else [1])
def test_a_table_grows_by_doubling(expected: int) -> None:
    size = table_size(expected, table_layout(*DEFAULT))
    assert size.doubled.slots == 2 * size.slots
    assert size.doubled.nodes_a == 2 * size.nodes_a
    churn = Churn(expected)
    slots, entry = churn.writer.slots, 0
    keys = keys_of(4 * slots)
    while churn.writer.slots == slots:
        assert not churn.edit(keys[entry : entry + 1], 0, np.ones(1, np.uint8)).rebuilt
        entry += 1
    assert churn.writer.slots == 2 * slots
    assert churn.writer.growths == 1
    churn.assert_exact()


def test_keys_of_one_shard_and_counted_keys_fill_a_table() -> None:
    """Neither the top bits that choose a shard nor regular keys may crowd buckets or nodes."""
    count = 20_000 // SCALE
    for keys in (np.arange(count, dtype=np.uint64), keys_of(count) >> np.uint64(9) | np.uint64(5 << 54)):
        writer, view = writer_and_view(count)
        assert not writer.edit(keys, 0, 0, np.ones(count, np.uint8)).rebuilt
        assert writer.entries == count
        view.load_snapshot(0, writer.snapshot(), 1, writer.digest())
        assert (view.lookup(keys) == 1).all()


def test_a_table_that_fills_within_one_edit_doubles_at_once() -> None:
    churn = Churn(40)
    keys = keys_of(200)
    assert not churn.edit(keys, 2, np.full(200, 2, np.uint8)).rebuilt
    churn.assert_exact()
    assert churn.writer.growths >= 2
    assert churn.writer.rebuilds == 0


def test_a_table_that_refuses_keys_while_half_empty_is_built_anew() -> None:
    churn = Churn(400)
    churn.edit(keys_of(100), 2, np.ones(100, np.uint8))
    (table,) = churn.writer._tables
    table.table.counts[PINNED] = PIN_LIMIT + 1
    run = PatchRun()
    table._make_room(run)
    patches = run.patches()
    assert patches.rebuilt and patches.payload == b"" and patches.groups == 1
    assert churn.writer.rebuilds == 1
    churn.take(patches)
    churn.assert_exact()
    assert not churn.edit(keys_of(3), 2, np.zeros(3, np.uint8)).rebuilt


@pytest.mark.parametrize(
    ("layout", "least", "most"),
    [(LAYOUTS[0], 0.0, 0.006), (LAYOUTS[1], 0.0, 0.0003), (LAYOUTS[2], 0.7, 0.9)],
    ids=["fingerprints of 8 bits", "fingerprints of 14 bits", "none"],
)
def test_how_often_a_key_never_inserted_hits(layout: TableLayout, least: float, most: float) -> None:
    count = 20_000 // SCALE
    writer, view = writer_and_view(count, layout=layout)
    writer.edit(keys_of(count), 0, 0, np.ones(count, np.uint8))
    view.load_snapshot(0, writer.snapshot(), 1, writer.digest())
    strangers = keys_of(5 * count, seed=77)
    hits = np.count_nonzero(view.lookup(strangers))
    assert least * strangers.size - 5 <= hits <= most * strangers.size + 5


@pytest.mark.parametrize(("layout", "bits"), list(zip(LAYOUTS, (47.5, 87, 38.3), strict=True)))
def test_bits_of_a_full_table(layout: TableLayout, bits: float) -> None:
    size = table_size(850_000, table_layout(*layout))
    assert 0.99 * bits <= 8 * size.words * size.layout.dtype.itemsize / (0.95 * size.slots) <= bits


def test_what_is_already_so_yields_no_group() -> None:
    writer, _ = writer_and_view(50)
    keys, tiers = keys_of(30), np.tile(np.array([1, 2], np.uint8), 15)
    first = writer.edit(keys, 0, 1, tiers)
    assert first.groups == 30
    digest = writer.digest()
    assert writer.edit(keys, 0, 1, tiers).groups == 0
    assert writer.edit(keys_of(9, seed=8), 0, 1, np.zeros(9, np.uint8)).groups == 0
    assert writer.digest() == digest


@settings(max_examples=EXAMPLES, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_lost_repeated_and_late_runs_converge(seed: int) -> None:
    """Runs come in any order, some twice, some never; a replay from what is applied mends a gap."""
    rng = random.Random(seed)
    keys = keys_of(150, seed)
    writer, view = writer_and_view(400, seed=seed)
    twin, log = NaiveTable(), []
    for _ in range(40):
        number, slot, tier = rng.randrange(150), rng.randrange(16), rng.randrange(3)
        patches = edit_one(writer, keys[number], slot, tier)
        twin.set(int(keys[number]), slot, tier)
        log += split_groups(patches.payload)
        assert not patches.rebuilt
    runs = []
    for _ in range(30):
        first = rng.randrange(len(log))
        runs.append((first, rng.randrange(first, len(log)) + 1))
    for first, end in runs:
        before, digest = view.applied_sequence(0), view.digest(0)
        result = view.apply(0, first + 1, end - first, b"".join(log[first:end]))
        assert result.gap == (first > before)
        assert result.applied == (0 if result.gap else max(0, end - before))
        assert result.refused_old == (0 if result.gap else min(end, before) - first)
        if not result.applied:
            assert (view.applied_sequence(0), view.digest(0)) == (before, digest)
    at = view.applied_sequence(0)
    view.apply(0, at + 1, len(log) - at, b"".join(log[at:]))
    assert view.digest(0) == writer.digest()
    assert_exact(view, twin)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_snapshot_round_trip_at_several_sizes(layout: TableLayout) -> None:
    name, bits = layout
    for expected in (1, 60, 4000 // SCALE):
        writer, view = writer_and_view(expected, tables=2, layout=layout)
        keys = keys_of(expected, expected)
        writer.edit(keys, 1, 5, np.ones(expected, np.uint8))
        shape = IndexShape(shards=3, tables=2, value_bits=bits, expected_entries=9, layout=name)
        view = IndexView(shape)
        for shard in (2, 0):
            view.load_snapshot(shard, writer.snapshot(), 7, writer.digest())
            assert view.digest(shard) == writer.digest()
            assert view.applied_sequence(shard) == 7
        assert view.present.tolist() == [True, False, True]
        values = view.lookup(keys)
        shards = (keys >> np.uint64(31)) * np.uint64(3) >> np.uint64(32)
        assert (values[:, 0] == 0).all()
        assert (values[:, 1] == np.where(shards == 1, 0, 1 << 10)).all()


def test_a_snapshot_of_another_layout_is_refused() -> None:
    for own in LAYOUTS:
        writer, _ = writer_and_view(40, layout=own)
        for other in LAYOUTS:
            if other != own:
                _, view = writer_and_view(40, layout=other)
                with pytest.raises(ProtocolError, match="snapshot: words of"):
                    view.load_snapshot(0, writer.snapshot(), 1, writer.digest())


def test_reading_arrays_and_refusals() -> None:
    writer, _ = writer_and_view(50)
    read_only = np.frombuffer(keys_of(4).tobytes(), np.uint64)
    assert writer.edit(read_only, 0, 0, np.frombuffer(b"\1\1\2\1", np.uint8)).groups == 4
    digest = writer.digest()
    with pytest.raises(ProtocolError, match="tier 3"):
        writer.edit(read_only, 0, 0, np.full(4, 3, np.uint8))
    with pytest.raises(ProtocolError, match="4 keys came with 2"):
        writer.edit(read_only, 0, 0, np.ones(2, np.uint8))
    with pytest.raises(KVCompassError, match="slot 16"):
        writer.edit(read_only, 0, 16, np.ones(4, np.uint8))
    with pytest.raises(KVCompassError, match="no layout 'paper' with 64-bit values"):
        IndexShape(shards=1, tables=1, value_bits=64, expected_entries=1, layout="paper")
    with pytest.raises(KVCompassError, match="over more shards"):
        IndexShape(shards=1, tables=1, value_bits=32, expected_entries=1 << 30)
    with pytest.raises(KVCompassError, match="over more shards"):  # fits, and could never double
        IndexShape(shards=1, tables=1, value_bits=32, expected_entries=1 << 29)
    IndexShape(shards=1, tables=1, value_bits=32, expected_entries=1 << 28)
    assert writer.digest() == digest
