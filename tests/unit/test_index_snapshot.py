"""Snapshots that arrive in parts: the shard is read as it was until the end, and then is the other one."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import ProtocolError
from kvcompass.index import IndexShape, IndexView, ShardTables, arena, frozen_shard
from kvcompass.kernels.jit import JIT
from tests.models.index_churn import LAYOUTS, Churn, TableLayout, keys_of


def filled(count: int, seed: int, layout: TableLayout = LAYOUTS[0]) -> Churn:
    """Two tables, of which the first holds keys at slot 3."""
    churn = Churn(max(1, count), tables=2, seed=1 + seed, layout=layout)
    churn.edit(keys_of(count, seed), 3, np.ones(count, np.uint8))
    churn.settle()
    return churn


@settings(max_examples=60 if JIT else 5, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    count=st.integers(0, 120),
    part=st.integers(1, 3_000),
    edited=st.integers(0, 20),
)
def test_any_cut_gives_the_same_view(layout: TableLayout, count: int, part: int, edited: int) -> None:
    old, new = filled(60, 1, layout), filled(count, 2, layout)
    view, data = old.view, new.writer.snapshot()
    view.begin_snapshot(0)
    for number, start in enumerate(range(0, len(data), part)):
        view.add_snapshot(0, data[start : start + part])
        if number < edited:
            old.edit_one(int(keys_of(40, 9)[number]), 5, 1)
    old.assert_exact()
    view.end_snapshot(0, 77, new.writer.digest())
    assert view.applied_sequence(0) == 77
    assert view.digest(0) == new.writer.digest()
    assert (view.lookup(keys_of(count, 2))[:, 0] == 1 << 6).all()


def test_a_snapshot_that_is_dropped_or_cut_leaves_the_shard_as_it_is() -> None:
    old, new = filled(60, 1), filled(90, 2)
    view, data = old.view, new.writer.snapshot()
    view.begin_snapshot(0)
    view.add_snapshot(0, data[:500])
    view.begin_snapshot(0)
    view.add_snapshot(0, data[:-1])
    with pytest.raises(ProtocolError, match="cut off"):
        view.end_snapshot(0, 9, new.writer.digest())
    view.begin_snapshot(0)
    with pytest.raises(ProtocolError, match="magic"):
        view.add_snapshot(0, b"\0" + data)
    view.begin_snapshot(0)
    view.add_snapshot(0, data)
    with pytest.raises(ProtocolError, match="follow its last table"):
        view.add_snapshot(0, b"\0")
    old.edit_one(5, 1, 1)
    old.assert_exact()


def test_tables_that_grow_meanwhile_move_what_has_arrived(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is laid out anew, several times, while a snapshot is half there and another table is half grown."""
    monkeypatch.setattr(arena, "_ADDRESSES", 1)
    old, new = filled(30, 1), filled(200, 2)
    data = new.writer.snapshot()
    view = IndexView(new.writer.shape)
    view.load_snapshot(0, old.writer.snapshot(), old.sequence, old.writer.digest())
    old.view = view
    view.begin_snapshot(0)
    view.add_snapshot(0, data[: len(data) // 2])
    arenas = [view.words]
    for key in keys_of(1_500 if JIT else 300, 7).tolist():
        old.edit_one(key, 2, 1)
        if view.words is not arenas[-1]:
            arenas.append(view.words)
    old.assert_exact()
    assert len(arenas) > 1
    view.add_snapshot(0, data[len(data) // 2 :])
    view.end_snapshot(0, 1, new.writer.digest())
    assert view.digest(0) == new.writer.digest()
    assert (view.lookup(keys_of(200, 2))[:, 0] == 1 << 6).all()


@settings(max_examples=60 if JIT else 5, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    count=st.integers(0, 90),
    cuts=st.lists(st.integers(0, 1 << 20), max_size=6),
)
def test_any_range_of_a_frozen_shard_is_that_of_the_whole(
    layout: TableLayout, count: int, cuts: list[int]
) -> None:
    writer = filled(count, 3, layout).writer
    whole = writer.snapshot()
    frozen = writer.freeze()
    while not frozen.is_whole:
        frozen.step()
    assert frozen.size == len(whole)
    at = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    assert b"".join(frozen.read(start, end) for start, end in pairwise(at)) == whole


def test_a_frozen_shard_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_shard, "_LINES", 3)
    churn = filled(60, 4)
    frozen, digest, steps = churn.writer.freeze(), churn.writer.digest(), 0
    while not frozen.is_whole:
        frozen.step()
        steps += 1
    assert steps > 4
    before = churn.writer.snapshot()
    churn.edit(keys_of(50, 5), 1, np.ones(50, np.uint8))
    assert frozen.read(0, frozen.size) == before
    assert frozen.digest == digest != churn.writer.digest()


def test_many_small_tables_are_copied_in_few_parts() -> None:
    """Edits wait for the copy: a part a table would make them wait longest where there is least to copy."""
    writer = ShardTables(
        IndexShape(shards=1, tables=200, value_bits=32, expected_entries=4), 0, random_seed=1
    )
    frozen, steps = writer.freeze(), 0
    while not frozen.is_whole:
        frozen.step()
        steps += 1
    assert 1 < steps <= 4
    view = IndexView(writer.shape)
    view.load_snapshot(0, frozen.read(0, frozen.size), 1, frozen.digest)
