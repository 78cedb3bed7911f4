"""Messages that must get there, in order: a cut way only delays them."""

from collections import deque
from typing import Any, Final, NamedTuple

from simulator.clock import Action
from simulator.router import Site

AGAIN_US: Final = 1_000_000
"""Between attempts to connect."""


class _Letter(NamedTuple):
    action: Action
    size: int
    args: tuple[Any, ...]


class Post:
    """TCP between every two regions, for one router."""

    def __init__(self, site: Site) -> None:
        regions = range(site.fleet.regions)
        self._site = site
        self._unsent: list[list[deque[_Letter]]] = [[deque() for _ in regions] for _ in regions]
        """By source and target; a timer runs where there is any."""

    def send(self, region: int, action: Action, size: int, *args: Any) -> None:
        """Do `action(*args)` in a region, after all that was sent there before."""
        unsent = self._unsent[self._site.here][region]
        if unsent:
            unsent.append(_Letter(action, size, args))
        elif not self._site.send_reliably(region, action, size, args):
            unsent.append(_Letter(action, size, args))
            self._site.after(AGAIN_US, self._again, region)

    def _again(self, region: int) -> None:
        unsent = self._unsent[self._site.here][region]
        while unsent and self._site.send_reliably(region, *unsent[0]):
            unsent.popleft()
        if unsent:
            self._site.after(AGAIN_US, self._again, region)
