"""SGLang's cache-aware router in every region, which never crosses into another (paper Fig. 18, Appendix C).

Follows the policy `cache_aware` of SGLang's router with its defaults (`--cache-threshold 0.3`,
`--balance-abs-threshold 64`, `--balance-rel-threshold 1.5`, `max_tree_size` 2^24): loads are the router's own
requests in flight; while they are unbalanced the least loaded worker is taken, else the one with the longest
match if that covers more than the threshold, else the one with the smallest tree. Where it leaves the choice
among equal holders open, the least loaded one is taken, and the smallest tree only decides among the least
loaded (it is known to feed a busy worker otherwise), both in its favour.

At its best where users of a region share prefixes among themselves and load is even. At its worst where one
region is busy while others idle, or where a prefix lies across the ocean.
"""

from typing import Final

from simulator.request import Request
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.holder_masks import workers_of
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.refusals import Refusals
from simulator.rivals.routed_prefixes import RoutedPrefixes
from simulator.router import Rival, Site

CACHE_THRESHOLD: Final = 0.3
BALANCE_ABS: Final = 64
BALANCE_REL: Final = 1.5


class PrefixAware(Indifferent):
    """One router a region over the workers of that region."""

    name = "prefix_aware"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._page_size = page_size_of(fleet)
        self._trees = [RoutedPrefixes(fleet.workers, self._page_size) for _ in range(fleet.regions)]
        """By worker of the whole fleet, of which a region only ever fills its own."""
        self._own: list[list[int]] = [[] for _ in range(fleet.regions)]
        for worker in range(fleet.workers):
            self._own[fleet.region_of(worker)].append(worker)
        self._in_flight = [0] * fleet.workers
        self._refusals = [Refusals() for _ in range(fleet.regions)]

    def arrive(self, request: Request) -> None:
        """Sends it to a worker of the region; fails it where there is none."""
        self._place(request, [])

    def refused(self, request: Request, worker: int) -> None:
        """Tries the region's others."""
        self._in_flight[worker] -= 1
        self._place(request, self._refusals[self._site.here].add(request.id, worker))

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """One less in flight."""
        self.lost(request, worker)

    def lost(self, request: Request, worker: int) -> None:
        """The same."""
        self._in_flight[worker] -= 1
        self._refusals[self._site.here].forget(request.id)

    def _place(self, request: Request, tried: list[int]) -> None:
        here = self._site.here
        candidates = [worker for worker in self._own[here] if worker not in tried]
        if not candidates:
            self._refusals[here].forget(request.id)
            self._site.fail(request)
            return
        tree, in_flight = self._trees[here], self._in_flight
        names = chunk_names(request.prompt, self._page_size)
        matched, holders = tree.match(names, sum(1 << worker for worker in candidates))
        loads = [in_flight[worker] for worker in candidates]
        most, least = max(loads), min(loads)
        unbalanced = most - least > BALANCE_ABS and most > BALANCE_REL * least
        claimed = 0
        if not unbalanced and matched * self._page_size > CACHE_THRESHOLD * len(request.prompt):
            worker = min(workers_of(holders), key=lambda w: in_flight[w])
            claimed = matched * self._page_size
        else:
            worker = min(candidates, key=lambda w: (in_flight[w], tree.size(w)))
        tree.insert(names, worker)
        in_flight[worker] += 1
        self._site.dispatch(request, worker, claimed)


PREFIX_AWARE = Rival(
    PrefixAware.name,
    PrefixAware,
    "SGLang's router, policy cache_aware with its defaults, one a region",
    regional=True,
)
