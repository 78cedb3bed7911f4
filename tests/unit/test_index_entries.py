"""Tables give out their entries, keys and all, and take them back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.errors import ProtocolError
from kvcompass.index import IndexShape, IndexView, ShardTables, frozen_entries
from kvcompass.kernels.jit import JIT

SHAPE = IndexShape(shards=1, tables=2, value_bits=32, expected_entries=50)
MOST = 2_000 if JIT else 200

Edits = list[tuple[int, int, int, int]]
edits = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 1), st.integers(0, 15), st.integers(0, 2)), max_size=150
)


def edited(changes: Edits) -> tuple[ShardTables, dict[int, dict[int, int]]]:
    """Tables, and what they must hold: by table, values by key."""
    tables = ShardTables(SHAPE, 0, random_seed=2)
    twin: dict[int, dict[int, int]] = {0: {}, 1: {}}
    for key, table, slot, tier in changes:
        tables.edit(np.array([key], np.uint64), table, slot, np.array([tier], np.uint8))
        value = twin[table].pop(key, 0) & ~(3 << 2 * slot) | tier << 2 * slot
        if value:
            twin[table][key] = value
    return tables, twin


def entries_of(tables: ShardTables, workers: list[tuple[int, int]]) -> dict[int, dict[int, int]]:
    frozen = tables.freeze_entries(workers)
    while not frozen.is_whole:
        frozen.step()
    return {
        table: dict(zip(keys.tolist(), values.tolist(), strict=True))
        for table, (keys, values) in enumerate(frozen.tables())
    }


EVERYBODY = [(table, slot) for table in range(2) for slot in range(16)]


@pytest.mark.parametrize("buckets", [1, 7, 100_000])
@given(edits, st.sets(st.sampled_from(EVERYBODY)))
@settings(max_examples=40 if JIT else 4, deadline=None)
def test_entries_are_what_was_edited_of_the_workers_asked_for(buckets, changes, workers):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen_entries, "_BUCKETS", buckets)
        tables, twin = edited(changes)
        fields = {table: sum(3 << 2 * slot for at, slot in workers if at == table) for table in range(2)}
        assert entries_of(tables, sorted(workers)) == {
            table: {key: value & fields[table] for key, value in held.items() if value & fields[table]}
            for table, held in twin.items()
        }


@given(edits, edits)
@settings(max_examples=40 if JIT else 4, deadline=None)
def test_tables_hold_what_they_are_given_back_and_nothing_of_before(before, after):
    tables, _ = edited(before)
    source, twin = edited(after)
    for table, held in twin.items():
        tables.restore(table, np.array(list(held), np.uint64), np.array(list(held.values()), np.uint64))
    assert entries_of(tables, EVERYBODY) == twin
    for place in EVERYBODY:
        assert tables.held(*place) == source.held(*place)
    view = IndexView(SHAPE)
    view.load_snapshot(0, tables.snapshot(), 0, tables.digest())
    for table, held in twin.items():
        assert view.lookup(np.array(list(held), np.uint64))[:, table].tolist() == list(held.values())


def test_a_table_grows_for_what_it_is_given_and_goes_on_taking_edits():
    tables = ShardTables(SHAPE, 0, random_seed=2)
    keys = np.arange(MOST, dtype=np.uint64) << np.uint64(20)
    tables.restore(1, keys, np.full(keys.size, 6, np.uint64))
    assert tables.held(1, 0)[0] == tables.held(1, 1)[0] == keys.size == tables.entries
    tables.edit(keys[:50], 1, 0, np.zeros(50, np.uint8))
    tables.clear_worker(1, 1)
    while tables.is_busy:
        tables.step()
    assert tables.held(1, 0)[0] == keys.size - 50 == tables.entries
    assert tables.held(1, 1) == (0, 0)


def test_entries_are_whole_while_a_table_doubles():
    tables = ShardTables(SHAPE, 0, random_seed=2)
    told = {}
    for key in range(MOST):
        tables.edit(np.array([key], np.uint64), 0, 3, np.array([1 + key % 2], np.uint8))
        told[key] = 1 + key % 2 << 6
        if tables.is_growing:
            assert entries_of(tables, EVERYBODY)[0] == told
    assert tables.growths > 0


def test_a_key_that_is_given_twice_changes_nothing():
    tables, twin = edited([(5, 0, 1, 2), (6, 0, 0, 1)])
    with pytest.raises(ProtocolError, match="twice"):
        tables.restore(0, np.array([7, 8, 7], np.uint64), np.array([1, 1, 2], np.uint64))
    assert entries_of(tables, EVERYBODY) == twin
    assert tables.held(0, 1)[0] == 1
