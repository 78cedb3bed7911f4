"""Draws by weight: of regions where requests start, of kinds of prompt."""

import random
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate


class Draw:
    """Gives indices, each as often as its weight says."""

    def __init__(self, weights: Sequence[float], stream: random.Random) -> None:
        total = sum(weights)
        assert total > 0
        self._bounds = [bound / total for bound in accumulate(weights)][:-1]
        self._random = stream.random

    def next(self) -> int:
        """Draw one index."""
        return bisect(self._bounds, self._random())
