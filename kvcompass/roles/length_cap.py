"""How long the prefixes are that a worker registers, when it holds more than it may."""

from collections import Counter
from typing import Final

_RAISE_AT: Final = 0.9
"""Of the bound: one more length must fit into it, so that the cap does not swing."""


class LengthCap:
    """Chooses the longest length at which prefixes are registered; all up to it are, and none above.

    The rule (`docs/decisions/0109`): while more prefixes are held at the lengths up to the cap than the bound
    allows, the cap falls to the length below; it rises to the length above when that one fits into 90 %.
    So whole lengths go, the longest first: what stays registered are shorter prefixes of the same prompts.
    """

    def __init__(self, lengths: list[int], most: int) -> None:
        """`lengths`, ascending; `most` prefixes may be registered."""
        self._lengths = lengths
        self._most = most
        self._kept = len(lengths)

    @property
    def length(self) -> int:
        """The longest length registered; 0 when not even the shortest fits."""
        return self._lengths[self._kept - 1] if self._kept else 0

    def stands(self, held: int) -> bool:
        """Whether every length is registered and stays so with so many prefixes held in all. O(1)."""
        return self._kept == len(self._lengths) and held <= self._most

    def update(self, held: Counter[int]) -> None:
        """Choose anew for so many prefixes held at each length. O(lengths)."""
        total, below = 0, [0]
        for length in self._lengths:
            total += held[length]
            below.append(total)
        while below[self._kept] > self._most:
            self._kept -= 1
        while self._kept < len(self._lengths) and below[self._kept + 1] <= _RAISE_AT * self._most:
            self._kept += 1
