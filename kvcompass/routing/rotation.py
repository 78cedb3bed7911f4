"""Deterministic turns: equal candidates are taken one after the other, so that none becomes the favourite."""

import numpy as np
from numpy.typing import NDArray


class Rotation:
    """A position that moves past whoever was taken. Edges start at different ones, so as not to herd."""

    def __init__(self, start: int) -> None:
        self.turn = start

    def first(self, among: NDArray[np.bool_]) -> int:
        """Whose turn it is (bool[W], one set at least): the first at or after the position, wrapping."""
        workers = np.flatnonzero(among)
        at = int(np.searchsorted(workers, self.turn))
        return int(workers[at if at < len(workers) else 0])

    def passed(self, worker: int) -> None:
        """The worker had its turn."""
        self.turn = worker + 1
