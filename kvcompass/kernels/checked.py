"""Arrays for interpreted kernels: an index outside 0..size-1 raises, a negative one too."""

from typing import Any

import numpy as np


class CheckedArray(np.ndarray[Any, Any]):
    """A view that refuses negative indices, which numpy would count from the end and a kernel never means."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_checked(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_checked(index), value)


def _checked(index: Any) -> Any:
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, int | np.integer) and part < 0:
            raise IndexError(f"negative index {part}")
    return index


def checked(argument: Any) -> Any:
    """The argument, as a CheckedArray on the same memory if it is an array, or with such if it is a tuple."""
    if type(argument) is np.ndarray:
        return argument.view(CheckedArray)
    if isinstance(argument, tuple) and any(type(part) is np.ndarray for part in argument):
        return type(argument)(*map(checked, argument))
    return argument
