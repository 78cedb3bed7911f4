"""Getting and giving back the memory of large tables a part at a time: the kernel takes 0.1 ms a megabyte."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.kernels.state import Table

_PAGE: Final = 4_096
_LET_GO: Final = 8 << 20
"""Bytes given back in one part."""


class Touching:
    """Touching every page of what a new table is read and written at random, before it is used.

    Otherwise its first few hundred keys touch all of it in one call.
    """

    def __init__(self, table: Table, arrays: Iterable[NDArray[np.uint32]]) -> None:
        """`arrays`: those of `table` to touch, whole ones in C order."""
        self.table: Final = table
        self._left = [array.reshape(-1) for array in arrays]

    def touch(self, size: int) -> bool:
        """Touch so many more bytes; whether all are."""
        while self._left and size > 0:
            array = self._left.pop()
            words = min(size // array.itemsize + 1, array.size)
            array[: words : _PAGE // array.itemsize] = 0
            size -= words * array.itemsize
            if words < array.size:
                self._left.append(array[words:])
        return not self._left


def let_go(arrays: list[NDArray[Any]]) -> None:
    """Give back a part of the memory of arrays that nobody reads any more; those done leave the list."""
    size = _LET_GO
    while arrays and size > 0:
        array = arrays[-1]
        rows = size * len(array) // array.nbytes
        if rows >= len(array):
            size -= array.nbytes
            arrays.pop()
        else:
            array.resize((len(array) - rows, *array.shape[1:]), refcheck=False)
            size = 0
