"""Growth in place: a table doubles while it is edited and read, and views need no snapshot for it."""

import numpy as np
import pytest

from kvcompass.errors import ProtocolError
from kvcompass.index import IndexShape, IndexView, ShardTables, table_writer
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, bit_words
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.patch_records import GROW, SPLIT, SPREAD
from tests.models.index_churn import LAYOUTS, Churn, TableLayout, crowded, growing, keys_of
from tests.models.index_naive import split_groups

ONE = np.ones(1, np.uint8)


@pytest.fixture(params=[1, 3, 1_024])
def slices(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Small slices, so that many edits fall into a growth; the last are those of production."""
    monkeypatch.setattr(table_writer, "_SLICE", request.param)
    monkeypatch.setattr(table_writer, "_SPLITS_AN_EDIT", min(8, request.param - 1))
    monkeypatch.setattr(table_writer, "_SPLITS_AN_INSERT", min(6, 1 + request.param))
    return int(request.param)


def grown_halfway() -> Churn:
    """A table of twelve lines some of whose buckets are split."""
    churn = Churn(100)
    for key in keys_of(500).tolist():
        churn.edit_one(key, 2, 1)
        if churn.writer.is_growing:
            break
    for key in keys_of(1, seed=6).tolist():
        churn.edit_one(key, 2, 1)
    assert churn.writer.is_growing
    assert churn.view._growth.any()
    return churn


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(6 if JIT else 1))
def test_a_view_is_exact_between_any_two_groups_of_a_growth(
    slices: int, layout: TableLayout, seed: int
) -> None:
    work = growing(seed, edits=150 if JIT else 25, layout=layout)
    assert work.growths > 2 or not JIT


def test_pins_outlive_a_growth_or_are_set_free_by_it(slices: int) -> None:
    done = [crowded(seed, edits=200 if JIT else 120) for seed in range(12 if JIT else 1)]
    assert sum(work.growths for work in done) > 0
    assert sum(work.pins for work in done) > 0


def test_a_table_grows_without_a_snapshot_and_stays_as_fast_to_fill() -> None:
    count = 20_000 if JIT else 300
    churn = Churn(count // 20)
    keys = keys_of(count)
    for start in range(0, count, 256):
        part = keys[start : start + 256]
        assert not churn.edit(part, 0, np.ones(part.size, np.uint8)).rebuilt
    churn.settle()
    churn.assert_exact()
    assert churn.writer.growths >= 4
    assert churn.writer.rebuilds == 0
    assert churn.writer.slots >= count


def test_growth_ends_by_itself_when_there_are_no_edits() -> None:
    churn = grown_halfway()
    slots = churn.writer.slots
    churn.settle()
    assert not churn.writer.is_growing
    assert churn.writer.slots == 2 * slots
    churn.assert_exact()


def test_no_slice_is_larger_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound below what 64 inserted keys ask for."""
    monkeypatch.setattr(table_writer, "_SLICE", 50)
    churn = Churn(6_000 if JIT else 200)
    most = 0
    for start in range(0, 30_000 if JIT else 600, 64):
        patches = churn.edit(keys_of(64, seed=start), 0, np.ones(64, np.uint8))
        for group in split_groups(patches.payload):
            words = np.frombuffer(group, "<u4")
            if words.size > 5 and words[2] & 255 == SPREAD:
                most = max(most, int(words[7]))
    assert 0 < most <= table_writer._SLICE


def test_repeated_and_lost_runs_of_a_growth_converge() -> None:
    churn = Churn(40)
    log: list[bytes] = []
    late = IndexView(churn.writer.shape)
    late.load_snapshot(0, churn.writer.snapshot(), 0, churn.writer.digest())
    for key in keys_of(120).tolist():
        log += split_groups(churn.edit_one(key, 1, 2).payload)
    assert churn.writer.growths >= 1
    rng = np.random.default_rng(1)
    while late.applied_sequence(0) < len(log):
        first = int(rng.integers(0, min(late.applied_sequence(0) + 3, len(log))))
        end = int(rng.integers(first, min(len(log), first + 9))) + 1
        before = late.applied_sequence(0)
        result = late.apply(0, first + 1, end - first, b"".join(log[first:end]))
        assert result.gap == (first > before)
        assert late.applied_sequence(0) == (before if result.gap else max(before, end))
    assert late.digest(0) == churn.writer.digest() == churn.view.digest(0)


def test_a_snapshot_takes_a_growing_views_place() -> None:
    churn = grown_halfway()
    other = Churn(300, seed=9)
    other.edit(keys_of(200, seed=8), 5, np.ones(200, np.uint8))
    churn.view.load_snapshot(0, other.writer.snapshot(), 7, other.writer.digest())
    assert churn.view.digest(0) == other.writer.digest()
    assert not churn.view._wide.any()


def test_malformed_growth_changes_nothing() -> None:
    churn = grown_halfway()
    view, row = churn.view, churn.view.directory[0]
    buckets, nodes = int(row[BUCKETS]), int(row[NODES_A] + row[NODES_B])
    words = int(bit_words(view.words, nodes))
    done, spread = int(view._growth[0, 1]), int(view._growth[0, 0])
    assert 0 < done < buckets
    bad = {
        "begin twice": [GROW, 0],
        "swap of a half": [GROW, 1],
        "a third step": [GROW, 2],
        "a hole in the buckets": [SPLIT, done + 1, 1, 0],
        "past the last bucket": [SPLIT, done, buckets - done + 1, *([0] * buckets)],
        "split bits cut off": [SPLIT, done, 9, 0],
        "most buckets": [SPLIT, 0, 2**32 - 1, 0],
        "a hole in the words": [SPREAD, spread + 1, 1],
        "past the last word": [SPREAD, 0, words + 1],
        "most words": [SPREAD, 0, 2**32 - 1],
        "record cut off": [SPREAD, 0],
    }

    def state() -> tuple[bytes, ...]:
        read = view.words[: view.used_bytes // view.words.itemsize]
        return tuple(each.tobytes() for each in (read, view.directory, view._wide, view._growth))

    before = state()
    for name, record in bad.items():
        group = np.array([2 + len(record), 1, *record], "<u4").tobytes()
        with pytest.raises(ProtocolError):
            view.apply(0, churn.sequence + 1, 1, group)
        assert state() == before, name
    two = np.array([6, 2, GROW, 1, GROW, 0], "<u4").tobytes()
    with pytest.raises(ProtocolError):
        view.apply(0, churn.sequence + 1, 1, two)
    idle = IndexView(churn.writer.shape)
    fresh = ShardTables(churn.writer.shape, 0, random_seed=3)
    idle.load_snapshot(0, fresh.snapshot(), 0, fresh.digest())
    for record in ([SPLIT, 0, 1, 0], [SPREAD, 0, 1], [GROW, 1]):
        with pytest.raises(ProtocolError):
            idle.apply(0, 1, 1, np.array([2 + len(record), 1, *record], "<u4").tobytes())


def test_other_tables_are_edited_while_one_grows() -> None:
    shape = IndexShape(shards=2, tables=2, value_bits=32, expected_entries=60)
    writers = [ShardTables(shape, shard, random_seed=shard) for shard in (0, 1)]
    view = IndexView(shape)
    for shard, writer in enumerate(writers):
        view.load_snapshot(shard, writer.snapshot(), 0, writer.digest())
    keys = keys_of(400 if JIT else 150)
    owner = (keys >> np.uint64(31)) * np.uint64(2) >> np.uint64(32)
    sequences = [0, 0]
    for key, shard in zip(keys, owner.astype(int).tolist(), strict=True):
        for table in (0, 1):
            patches = writers[shard].edit(np.array([key]), table, 3 + table, ONE)
            view.apply(shard, sequences[shard] + 1, patches.groups, patches.payload)
            sequences[shard] += patches.groups
            assert view.digest(shard) == writers[shard].digest()
    assert (view.lookup(keys) == [1 << 6, 1 << 8]).all()
    assert all(writer.growths >= 2 for writer in writers)
