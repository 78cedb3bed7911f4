"""Chord: "the six-level hash-based layout with one DHT key per chunk-size level" (paper 5.1).

Follows Stoica et al., "Chord: A scalable peer-to-peer lookup service for Internet applications" (SIGCOMM
2001): every worker runs log2 N virtual nodes (their section 6.2), a search goes from finger to finger, each
hop a message over the links that lie between the workers' regions, recursively (the last node answers the
edge, which saves half of the iterative style's way), and nothing found is kept: their protocol leaves caching
to the application, and a kept ring would be consistent hashing. An edge asks the worker of its region whose
turn it is. The chunk size that decides is the longest that the prompt fills, as in `consistent_hash`.

At its best within one region, where its hops cost little. At its worst across oceans: O(log N) one-way trips
before a request even leaves.
"""

import math

from simulator.request import Request
from simulator.rivals.chord_nodes import ChordNodes
from simulator.rivals.hash_ring import point
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.level_keys import placement_key
from simulator.rivals.post import Post
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site

_MESSAGE_BYTES = 64
"""A search or its answer: a key, an address and the headers of UDP/IP."""


class Chord(Indifferent):
    """Searches the owner of a prompt's chunk anew for each request, then sends it there."""

    name = "chord"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._post = Post(site)
        self.nodes = ChordNodes(fleet.workers, max(1, round(math.log2(fleet.workers))))
        self._region = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self._doors = [
            [node for node, worker in enumerate(self.nodes.worker) if self._region[worker] == region]
            or list(range(len(self.nodes.worker)))
            for region in range(fleet.regions)
        ]
        """Nodes that a region's edge asks, in turn."""
        self._turns = [0] * fleet.regions
        self._refusals = [Refusals() for _ in range(fleet.regions)]

    def arrive(self, request: Request) -> None:
        """Asks a node of its region."""
        self._search(request, ring_key(request))

    def refused(self, request: Request, worker: int) -> None:
        """Searches the node after that of the worker, which keeps what the first one would (4.3)."""
        tried = self._refusals[self._site.here].add(request.id, worker)
        node = self.nodes.successor_of(ring_key(request))
        for step in range(len(self.nodes.ids)):
            following = (node + step) % len(self.nodes.ids)
            if self.nodes.worker[following] not in tried:
                self._search(request, self.nodes.ids[following])
                return
        self._refusals[self._site.here].forget(request.id)
        self._site.fail(request)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Forgets who refused it."""
        self._refusals[self._site.here].forget(request.id)

    def _search(self, request: Request, key: int) -> None:
        here = self._site.here
        doors = self._doors[here]
        self._turns[here] += 1
        self._send(doors[self._turns[here] % len(doors)], key, request, here)

    def _at_node(self, node: int, key: int, request: Request, origin: int) -> None:
        """At a node's worker: pass the search on, or answer it."""
        following = self.nodes.next_hop(node, key)
        if following is not None:
            self._send(following, key, request, origin)
            return
        owner = self.nodes.worker[(node + 1) % len(self.nodes.ids)]
        self._post.send(origin, self._site.dispatch, _MESSAGE_BYTES, request, owner)

    def _send(self, node: int, key: int, request: Request, origin: int) -> None:
        region = self._region[self.nodes.worker[node]]
        self._post.send(region, self._at_node, _MESSAGE_BYTES, node, key, request, origin)


def ring_key(request: Request) -> int:
    """One DHT key for the chunk size that decides: all levels share one ring of nodes."""
    level, key = placement_key(request.prompt)
    return point(f"level {level} {key}")


CHORD = Rival(
    Chord.name,
    Chord,
    "Stoica et al. (SIGCOMM 2001), one key per chunk size (paper 5.1), log2 N virtual nodes",
)
