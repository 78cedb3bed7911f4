"""Consistent hashing: "six independent content-hash rings" (paper 5.1), one a chunk size.

Follows Karger et al. (STOC 1997) as proxies deploy it: Envoy's `ring_hash`, whose smallest ring has 1,024
points (`minimum_ring_size`), shared by the workers of the world. An edge cuts a prompt at the longest of the
six chunk sizes that it fills and sends it to the owner of that prefix on that size's ring. No state, no
messages, and neither load nor distance is looked at.

At its best where many prompts of equal popularity share long prefixes: each prefix is computed once in the
world. At its worst where one prefix is popular, where its cut lies just beyond what prompts share, or where
every request has to cross an ocean for a short one.
"""

from typing import Final

from simulator.request import Request
from simulator.rivals.hash_ring import HashRing
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.level_keys import LEVELS, placement_key
from simulator.router import Rival, Site

LEAST_POINTS: Final = 1_024
"""Points of a ring: Envoy's `minimum_ring_size`."""


class ConsistentHash(Indifferent):
    """The prompt alone decides."""

    name = "consistent_hash"

    def __init__(self, site: Site) -> None:
        self._site = site
        workers = site.fleet.workers
        points = -(-LEAST_POINTS // workers)
        self._rings = [HashRing(workers, points, f"level {length}") for length in LEVELS]

    def arrive(self, request: Request) -> None:
        """Sends it to the owner of its longest chunk."""
        level, key = placement_key(request.prompt)
        self._site.dispatch(request, self._rings[level].owner(key))

    def refused(self, request: Request, worker: int) -> None:
        """Sends it to the next worker on the ring; gives up after the last."""
        level, key = placement_key(request.prompt)
        order = list(self._rings[level].owners(key))
        following = order.index(worker) + 1
        if following < len(order):
            self._site.dispatch(request, order[following])
        else:
            self._site.fail(request)


CONSISTENT_HASH = Rival(
    ConsistentHash.name,
    ConsistentHash,
    "Karger et al. (STOC 1997), six rings by chunk size (paper 5.1), ring size of Envoy's ring_hash",
)
