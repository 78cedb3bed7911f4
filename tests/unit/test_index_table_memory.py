"""Memory of large tables is got and given back in parts that add up to all of it."""

from itertools import pairwise

import numpy as np

from kvcompass.index.shape import IndexShape, table_size
from kvcompass.index.table_arrays import new_table
from kvcompass.index.table_memory import Touching, let_go

SIZE = table_size(100_000, IndexShape(1, 1, 32, 100_000).table_layout)


def test_touching_ends_after_all_bytes_and_changes_none() -> None:
    table = new_table(SIZE, 0, 1, np.zeros((16, 2), np.uint64))
    touching = Touching((table.edges, table.heads))
    parts = 1
    while not touching.touch(1 << 16):
        parts += 1
    assert abs(parts - (table.edges.nbytes + table.heads.nbytes) / (1 << 16)) < 3
    assert not table.edges.any() and not table.heads.any()


def test_letting_go_takes_a_part_a_call() -> None:
    arrays = [np.zeros(10, np.uint32), np.zeros((1 << 20, 4), np.uint32), np.zeros(3 << 20, np.uint64)]
    left = [sum(array.nbytes for array in arrays)]
    while arrays:
        let_go(arrays)
        left.append(sum(array.nbytes for array in arrays))
    assert all(0 < before - after <= 9 << 20 for before, after in pairwise(left))
    assert len(left) == 7
