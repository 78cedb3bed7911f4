"""Where recorded conversations start, of which traces mostly do not tell."""

from typing import Protocol


class Regions(Protocol):
    """Draws regions by weight."""

    def next(self) -> int:
        """Draw the index of a region."""


class Homes:
    """A region for each conversation, drawn when its first request comes."""

    def __init__(self, regions: Regions, remembered: int) -> None:
        self._regions = regions
        self._of: dict[int, int] = {}
        self._remembered = remembered

    def of(self, root: int) -> int:
        """Return a conversation's region. Those not heard of for longest are forgotten, and drawn anew."""
        region = self._of.pop(root, None)
        if region is None:
            region = self._regions.next()
        self._of[root] = region
        if len(self._of) > self._remembered:
            del self._of[next(iter(self._of))]
        return region
