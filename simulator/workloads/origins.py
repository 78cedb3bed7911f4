"""Where requests start."""

import random
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate


class Origins:
    """Draws regions by weight."""

    def __init__(self, weights: Sequence[float], stream: random.Random) -> None:
        assert sum(weights) > 0
        self._bounds = [bound / sum(weights) for bound in accumulate(weights)][:-1]
        self._random = stream.random

    def draw(self) -> int:
        """Return the index of a region."""
        return bisect(self._bounds, self._random())
