"""Deterministic turns: equal candidates are taken one after the other, so that none becomes the favourite."""

import numpy as np
from numpy.typing import NDArray


class Rotation:
    """A position that moves past whoever was taken. Edges start at different ones, so as not to herd."""

    def __init__(self, start: int) -> None:
        self._next = start

    def first(self, workers: NDArray[np.intp]) -> int:
        """Whose turn it is among `workers` (ascending, not empty): the first at or after the position."""
        at = int(np.searchsorted(workers, self._next)) if len(workers) > 1 else 0
        return int(workers[at if at < len(workers) else 0])

    def passed(self, worker: int) -> None:
        """The worker had its turn."""
        self._next = worker + 1
