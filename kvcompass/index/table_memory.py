"""Getting and giving back the memory of large tables a part at a time: the kernel takes 0.1 ms a megabyte."""

from collections.abc import Iterable
from typing import Any, Final

from numpy.typing import NDArray

from kvcompass.kernels.state import Table

_PAGE: Final = 4_096
_LET_GO: Final = 8 << 20
"""Bytes given back in one part."""


class Touching:
    """Touching every page of new arrays before they are used.

    What is written at random is else touched as a whole by the first few hundred keys, in one call; and where
    several arrays are written in step, one call meets a new page of each. The kernel clears two megabytes for
    a page of that size, which takes 0.3 ms, and several where a virtual machine must get them first.
    """

    def __init__(self, arrays: Iterable[NDArray[Any]]) -> None:
        """`arrays`: zero, whole and in C order."""
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


def written_at_random(table: Table) -> tuple[NDArray[Any], ...]:
    """Arrays of a table that few keys write all over. Entries are taken in order."""
    return table.words, table.slot_key, table.slot_entry, table.heads
