"""The benchmark's baselines answer as a dict does: a wrong baseline is no comparison."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.baselines import Baseline, HashMap, OpenAddressing

MAKERS: list[Callable[[], Baseline]] = [lambda: OpenAddressing(48), HashMap]

KEYS = st.integers(0, 63)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.tuples(KEYS, st.integers(0, 2**32 - 1)), max_size=8)),
        st.tuples(st.just("remove"), st.lists(KEYS, max_size=8)),
    ),
    max_size=40,
)
UNIVERSE = np.arange(64, dtype=np.uint64)


@pytest.mark.parametrize("make", MAKERS, ids=["open addressing", "hash map"])
@settings(deadline=None, max_examples=150)
@given(steps=STEPS)
def test_every_step_leaves_what_a_dict_holds(
    make: Callable[[], Baseline], steps: list[tuple[str, list]]
) -> None:
    table, twin = make(), dict[int, int]()
    for what, items in steps:
        if what == "put":
            if len(twin) + len(items) >= 57:
                continue
            keys, values = (np.array([item[i] for item in items], np.uint64) for i in (0, 1))
            table.put(keys, values.astype(np.uint32))
            twin.update(items)
        else:
            table.remove(np.array(items, np.uint64))
            for key in items:
                twin.pop(key, None)
        assert len(table) == len(twin)
        assert table.get(UNIVERSE).tolist() == [twin.get(int(key), 0) for key in UNIVERSE]


def test_a_long_life_at_85_percent_leaves_no_tombstones() -> None:
    rng = np.random.default_rng(1)
    table, twin = OpenAddressing(10_000), dict[int, int]()
    for _ in range(60):
        leaving = rng.permutation(list(twin))[: len(twin) // 3].astype(np.uint64)
        table.remove(leaving)
        for key in leaving:
            del twin[int(key)]
        keys = rng.integers(1, 1 << 63, 10_000 - len(twin), dtype=np.uint64)
        values = rng.integers(1, 1 << 32, keys.size, dtype=np.uint32)
        table.put(keys, values)
        twin.update(zip(keys.tolist(), values.tolist(), strict=True))
    held = np.array(list(twin), np.uint64)
    assert table.get(held).tolist() == list(twin.values())
    assert np.count_nonzero(table.words) == len(table) == len(twin)
    assert table.view_bits_per_entry == pytest.approx(64 / 0.85, rel=0.01)
    assert not table.get(rng.integers(1, 1 << 63, 100_000, dtype=np.uint64)).any()


def test_a_table_that_could_fill_up_refuses() -> None:
    with pytest.raises(ValueError, match="too few"):
        OpenAddressing(8).put(np.arange(11, dtype=np.uint64), np.ones(11, np.uint32))
