"""What every region tells all others, again and again."""

from collections.abc import Callable
from typing import Final, Generic, TypeVar

from simulator.rivals.post import Post
from simulator.router import Site

T = TypeVar("T")

PERIOD_US: Final = 100_000
"""Delta of the paper's 5.1, shared by its testbed and simulator; works that name no period get it too."""

Told = tuple[T, int]
"""A message and its size in bytes."""


class Broadcast(Generic[T]):
    """Runs for good."""

    def __init__(
        self,
        site: Site,
        tell: Callable[[], Told[T] | None],
        hear: Callable[[int, T], None],
        period_us: int = PERIOD_US,
    ) -> None:
        """Begin with the run, each region at another part of the period.

        Args:
            site: The world.
            tell: Called every period in each region (`Site.here`); None: nothing to tell.
            hear: Called where a message arrives, with the region that sent it.
            period_us: Delta.
        """
        regions = site.fleet.regions
        self._site = site
        self._tell = tell
        self._hear = hear
        self._period_us = period_us
        self._post = Post(site)
        for region in range(regions):
            site.begin(region, site.after, period_us * (region + 1) // regions, self._tick)

    def _tick(self) -> None:
        here = self._site.here
        told = self._tell()
        if told is not None:
            message, size = told
            for region in range(self._site.fleet.regions):
                if region != here:
                    self._post.send(region, self._hear, size, here, message)
        self._site.after(self._period_us, self._tick)
