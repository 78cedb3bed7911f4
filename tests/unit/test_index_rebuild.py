"""Tables built anew: from many keys at once, or smaller beside an old one that goes on taking edits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.index import build_beside
from kvcompass.index.bulk_build import BulkBuild
from kvcompass.index.layout import table_layout
from kvcompass.index.shape import TableSize, table_size
from kvcompass.kernels.insertion import find_slot
from kvcompass.kernels.jit import JIT
from kvcompass.kernels.state import ENTRIES, PINNED, new_scratch
from tests.models.index_audit import audit
from tests.models.index_churn import DEFAULT, LAYOUTS, Churn, TableLayout, keys_of


def load(churn: Churn, keys: np.ndarray, slot: int, tiers: np.ndarray) -> None:
    churn.take(churn.writer.load(keys, 0, slot, tiers))
    for key, tier in zip(keys.tolist(), tiers.tolist(), strict=True):
        churn.twin.set(key, slot, tier)


def assert_same(churn: Churn) -> None:
    churn.assert_exact()
    audit(churn.writer)
    assert churn.writer.entries == len(churn.twin.values)
    for slot in range(churn.writer.shape.worker_slots):
        held, tiers = churn.writer.holdings(0, slot)
        assert dict(zip(held.tolist(), tiers.tolist(), strict=True)) == churn.twin.holdings(slot)


@settings(max_examples=40 if JIT else 4, deadline=None)
@given(
    layout=st.sampled_from(LAYOUTS),
    expected=st.integers(1, 300),
    before=st.integers(0, 200),
    numbers=st.lists(st.integers(0, 300), max_size=300),
    seed=st.integers(0, 99),
)
def test_loading_is_editing(
    layout: TableLayout, expected: int, before: int, numbers: list[int], seed: int
) -> None:
    """Other workers' fields stay, withdrawals count, of two tiers for a key the later one does."""
    churn = Churn(expected, layout=layout, seed=1 + seed)
    rng = np.random.default_rng(seed)
    keys = keys_of(301)
    churn.edit(keys[:before], 3, rng.integers(1, 3, before).astype(np.uint8))
    churn.edit(keys[before // 2 : before], 5, rng.integers(0, 3, before - before // 2).astype(np.uint8))
    load(churn, keys[numbers], 5, rng.integers(0, 3, len(numbers)).astype(np.uint8))
    assert_same(churn)
    churn.edit(keys[:50], 1, np.ones(50, np.uint8))
    churn.empty_of(5)
    assert_same(churn)


def test_a_crowded_build_pins_what_it_can_and_leaves_over_the_rest() -> None:
    """With few nodes many edges close cycles: half of them with the wrong bit."""
    pinned = 0
    for seed in range(30 if JIT else 3):
        nodes = 50 + seed
        size = TableSize(buckets=30, nodes_a=nodes, nodes_b=nodes, layout=table_layout(*DEFAULT))
        keys = keys_of(75, seed)
        values = np.arange(1, 76, dtype=np.uint64)
        build = BulkBuild(size, 0, seed, np.zeros((16, 2), np.uint64), new_scratch(), keys, values)
        assert build.run()
        assert int(build.table.counts[ENTRIES]) == keys.size
        assert all(find_slot(build.table, key) >= 0 for key in keys)
        assert_built(build, keys, values)
        pinned += int(build.table.counts[PINNED])
    assert pinned > 0


def test_a_key_given_twice_counts_once() -> None:
    keys = keys_of(60)
    twice = np.concatenate([keys, keys[::-1], keys[:9]])
    values = np.ones(twice.size, np.uint64)
    size = table_size(200, table_layout(*DEFAULT))
    build = BulkBuild(size, 0, 7, np.zeros((16, 2), np.uint64), new_scratch(), twice, values)
    assert build.run()
    assert int(build.table.counts[ENTRIES]) == keys.size
    assert_built(build, keys, values[:60])


def assert_built(build: BulkBuild, keys: np.ndarray, values: np.ndarray) -> None:
    churn = Churn(1)
    (writer,) = churn.writer._tables
    writer.lay(build.table, writer.wide)
    churn.load()
    assert churn.view.lookup(keys)[:, 0].tolist() == values.tolist()
    seen = sorted(int(entry) for entry in build.table.slot_entry if entry)
    assert len(set(seen)) == len(seen) == keys.size


def test_a_large_build_is_exact_and_full() -> None:
    count = 40_000 if JIT else 400
    churn = Churn(count)
    keys = keys_of(count)
    load(churn, keys, 2, np.ones(count, np.uint8))
    churn.assert_exact()
    assert churn.writer.rebuilds == 1
    assert churn.writer.entries >= 0.83 * churn.writer.slots


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(4 if JIT else 1))
def test_a_table_shrinks_while_it_is_edited(
    layout: TableLayout, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_beside, "_BUCKETS", 5)
    monkeypatch.setattr(build_beside, "_NOTED", 4)
    churn = Churn(20, seed=1 + seed, layout=layout)
    rng = np.random.default_rng(seed)
    keys = keys_of(600 if JIT else 150, seed)
    churn.edit(keys, 3, np.ones(keys.size, np.uint8))
    churn.settle()
    slots = churn.writer.slots
    churn.edit(keys[keys.size // 8 :], 3, np.zeros(keys.size - keys.size // 8, np.uint8))
    edited = 0
    while not churn.writer.shrinks:
        churn.step()
        if rng.random() < 0.5:
            some = rng.choice(keys[: keys.size // 7], 2)
            churn.edit(some, int(rng.integers(0, 5)), rng.integers(0, 3, 2).astype(np.uint8))
            edited += 1
        churn.assert_exact()
    assert edited > 3
    assert churn.writer.slots < slots
    churn.settle()
    assert_same(churn)


def test_clearing_gives_up_a_smaller_table_that_is_being_built() -> None:
    churn = Churn(20)
    keys = keys_of(300)
    churn.edit(keys, 3, np.ones(300, np.uint8))
    churn.settle()
    churn.edit(keys[30:], 3, np.zeros(270, np.uint8))
    churn.step()
    assert churn.writer.is_busy
    churn.clear(3)
    churn.settle()
    assert churn.writer.entries == 0
    assert churn.writer.shrinks >= 1
    assert_same(churn)
