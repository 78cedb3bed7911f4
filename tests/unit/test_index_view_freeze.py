"""A copy of a view's shard is the snapshot that its unit would give at the same sequence."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.index import IndexView, arena, frozen_shard
from kvcompass.index.frozen_shard import FrozenShard
from kvcompass.kernels.jit import JIT
from tests.models.index_churn import LAYOUTS, Churn, TableLayout, keys_of


def churned(count: int, seed: int, layout: TableLayout = LAYOUTS[0]) -> Churn:
    """Two tables; the first has come to its size by patches, growths included."""
    churn = Churn(20, tables=2, seed=1 + seed, layout=layout)
    churn.edit(keys_of(count, seed), 3, np.ones(count, np.uint8))
    churn.settle()
    return churn


def whole(frozen: FrozenShard) -> bytes:
    while not frozen.is_whole:
        frozen.step()
    return frozen.read(0, frozen.size)


@settings(max_examples=40 if JIT else 4, deadline=None)
@given(layout=st.sampled_from(LAYOUTS), count=st.integers(0, 150), seed=st.integers(0, 5))
def test_it_has_the_bytes_of_the_units_own(layout: TableLayout, count: int, seed: int) -> None:
    churn = churned(count, seed, layout)
    frozen = churn.view.freeze(0)
    assert frozen.digest == churn.writer.digest()
    assert whole(frozen) == churn.writer.snapshot()


def test_another_view_made_of_it_follows_the_same_patches() -> None:
    churn = churned(80, 2)
    frozen, sequence = churn.view.freeze(0), churn.sequence
    other = IndexView(churn.writer.shape)
    other.load_snapshot(0, whole(frozen), sequence, frozen.digest)
    for key in keys_of(100, 7).tolist():
        patches = churn.edit_one(key, 5, 2)
        other.apply(0, other.applied_sequence(0) + 1, patches.groups, patches.payload)
    assert other.digest(0) == churn.view.digest(0) == churn.writer.digest()


def test_the_copy_stays_as_it_was_when_all_images_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another shard may load and grow while this one is copied: the arena may be laid out anew for it."""
    monkeypatch.setattr(arena, "_ADDRESSES", 1)
    monkeypatch.setattr(frozen_shard, "_LINES", 3)
    churn = churned(90, 3)
    view, expected = churn.view, churn.writer.snapshot()
    frozen, before = view.freeze(0), view.words
    frozen.step()
    room = before.size
    view._make_room(room)
    assert view.words is not before
    base = view._arena.take(room)
    view.words[base : base + room] = 7
    assert whole(frozen) == expected
    churn.assert_exact()


def test_there_is_none_of_a_table_that_grows() -> None:
    churn, grew = Churn(40), False
    for key in keys_of(200).tolist():
        churn.edit_one(key, 2, 1)
        assert churn.view.is_growing(0) == churn.writer.is_growing
        if churn.writer.is_growing:
            grew = True
            with pytest.raises(AssertionError):
                churn.view.freeze(0)
    assert grew
    churn.settle()
    assert whole(churn.view.freeze(0)) == churn.writer.snapshot()
