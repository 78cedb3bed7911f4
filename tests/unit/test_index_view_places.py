"""A view knows at which places it has something, through growth and clearing, and forgets a shard."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcompass.index import IndexShape, IndexView, ShardTables
from kvcompass.index.patches import Patches
from tests.models.index_churn import LAYOUTS, TableLayout

KEYS = np.random.default_rng(5).integers(0, 1 << 63, 64, dtype=np.uint64)
SLOTS = (0, 3, 15)


class Followed:
    def __init__(self, layout: TableLayout) -> None:
        name, bits = layout
        shape = IndexShape(shards=1, tables=2, value_bits=bits, expected_entries=4, layout=name)
        self.writer = ShardTables(shape, 0, random_seed=1)
        self.view = IndexView(shape)
        self.sequence = 0
        self.load()

    def load(self) -> None:
        while self.writer.is_growing:
            self.take(self.writer.step())
        self.view.load_snapshot(0, self.writer.snapshot(), self.sequence, self.writer.digest())

    def take(self, patches: Patches) -> None:
        if patches.rebuilt:
            self.sequence += 1
            self.load()
        elif patches.groups:
            self.view.apply(0, self.sequence + 1, patches.groups, patches.payload)
            self.sequence += patches.groups

    def check(self) -> None:
        values = self.view.lookup(KEYS)
        for table in range(2):
            for slot in SLOTS:
                read = bool((values[:, table] >> np.uint64(2 * slot) & np.uint64(3)).any())
                assert read <= self.view.has_fields(0, table, slot)
                if self.writer.held(table, slot)[0] == 0 and not self.writer.is_clearing(table, slot):
                    assert not self.view.has_fields(0, table, slot)


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(("edit", "edit", "edit", "clear", "step")),
            st.integers(0, 1),
            st.sampled_from(SLOTS),
            st.integers(0, 63),
            st.integers(0, 2),
        ),
        max_size=60,
    )
)
def test_a_view_has_fields_exactly_where_its_writer_has(
    layout: TableLayout, steps: list[tuple[str, int, int, int, int]]
) -> None:
    followed = Followed(layout)
    for what, table, slot, first, tier in steps:
        if what == "edit":
            keys = KEYS[first : first + 12]
            tiers = np.full(keys.size, tier, np.uint8)
            followed.take(followed.writer.edit(keys, table, slot, tiers))
        elif what == "clear":
            followed.writer.clear_worker(table, slot)
        else:
            followed.take(followed.writer.step())
        followed.check()


def test_a_forgotten_shard_is_absent_until_a_snapshot_comes() -> None:
    followed = Followed(LAYOUTS[0])
    followed.take(followed.writer.edit(KEYS[:4], 0, 3, np.ones(4, np.uint8)))
    assert followed.view.has_fields(0, 0, 3)
    followed.view.forget(0)
    assert not followed.view.has_fields(0, 0, 3)
    assert not followed.view.lookup(KEYS).any()
    patches = followed.writer.edit(KEYS[4:5], 0, 3, np.ones(1, np.uint8))
    assert followed.view.apply(0, followed.sequence + 1, patches.groups, patches.payload).gap
    followed.load()
    assert (followed.view.lookup(KEYS[:5])[:, 0] == 1 << 6).all()
