"""The worker with the shortest queue, as far as an edge can know: join-the-shortest-queue over the WAN.

Follows least-connections load balancers: an edge asks the engines of its own region at every request, and
regions tell each other their engines' loads every period (the paper's Delta). What an edge has sent to a
worker and a load cannot show yet is added to it. Caches are not looked at, and distance only among equals.

At its best where prompts share nothing and prefill is all there is. At its worst where prefixes are long: it
computes them again on every worker.
"""

from collections import deque
from typing import NamedTuple

from kvcompass.engine_model import QueueLoad
from simulator.fleet import Fleet
from simulator.reading import Reading
from simulator.request import Request
from simulator.rivals.broadcast import Broadcast, Told
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site

_LOAD_BYTES = 16
"""A worker and two counts."""

Loads = dict[int, Reading[QueueLoad]]


class Seen(NamedTuple):
    """Of an engine's load."""

    unanswered: int
    """Requests without a first token."""
    decoding: int
    at_us: int
    """When it was so."""


class _Edge:
    """What a region knows of all workers."""

    def __init__(self, fleet: Fleet, region: int) -> None:
        places = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self.own = [worker for worker, place in enumerate(places) if place == region]
        self.way_us = [round(1000.0 * fleet.plan.wan_ms[region][place]) for place in places]
        self.told: dict[int, Seen] = {}
        """Of workers elsewhere."""
        self.decoding = [0] * fleet.workers
        """Of own ones, when last looked at, and those sent since: only tells whom to ask first."""
        self.sent_us: list[deque[int]] = [deque() for _ in places]
        """When the last requests went to each, those that a load may not show."""
        self.turn = 0
        self.refusals = Refusals()

    def queue(self, worker: int, seen: Seen) -> int:
        """Requests without a first token, those on their way included."""
        sent = self.sent_us[worker]
        while sent and sent[0] + self.way_us[worker] <= seen.at_us:
            sent.popleft()
        return seen.unanswered + len(sent)


class LeastLoaded(Indifferent):
    """Counts requests without a first token; among equals ways, then those that decode, then turns."""

    name = "least_loaded"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._workers = fleet.workers
        self._edges = [_Edge(fleet, region) for region in range(fleet.regions)]
        Broadcast(site, self._tell, self._hear)

    def arrive(self, request: Request) -> None:
        """Sends it to the shortest queue."""
        self._place(request, [])

    def refused(self, request: Request, worker: int) -> None:
        """Sends it to the next shortest; gives up after all."""
        self._place(request, self._edges[self._site.here].refusals.add(request.id, worker))

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Forgets who refused it."""
        self._edges[self._site.here].refusals.forget(request.id)

    def _place(self, request: Request, tried: list[int]) -> None:
        edge = self._edges[self._site.here]
        edge.turn += 1
        worker = self._shortest(edge, tried)
        if worker is None:
            edge.refusals.forget(request.id)
            self._site.fail(request)
            return
        edge.sent_us[worker].append(self._site.now_us)
        edge.decoding[worker] += 1
        self._site.dispatch(request, worker)

    def _shortest(self, edge: _Edge, tried: list[int]) -> int | None:
        """The shortest queue. An empty one here is as good as any, so nobody is asked after it."""
        turn, count, ways, decoding = edge.turn, self._workers, edge.way_us, edge.decoding
        known = []
        for worker in sorted(edge.own, key=lambda one: (decoding[one], (one + turn) % count)):
            if worker not in tried:
                seen = _seen(self._site.load(worker))
                queue = edge.queue(worker, seen)
                if not queue:
                    return worker
                known.append((queue, ways[worker], seen.decoding, (worker + turn) % count, worker))
        for worker, seen in edge.told.items():
            if worker not in tried:
                queue = edge.queue(worker, seen)
                known.append((queue, ways[worker], seen.decoding, (worker + turn) % count, worker))
        if known:
            return min(known)[-1]
        unheard = [one for one in range(count) if one not in tried]
        return min(unheard, key=lambda one: (ways[one], (one + turn) % count), default=None)

    def _tell(self) -> Told[Loads] | None:
        edge = self._edges[self._site.here]
        loads = {worker: self._site.load(worker) for worker in edge.own}
        for worker, load in loads.items():
            edge.decoding[worker] = load.value.decoding
        return (loads, _LOAD_BYTES * len(loads)) if loads else None

    def _hear(self, source: int, loads: Loads) -> None:
        told = self._edges[self._site.here].told
        for worker, load in loads.items():
            told[worker] = _seen(load)


def _seen(load: Reading[QueueLoad]) -> Seen:
    counts = load.value
    return Seen(counts.waiting + counts.running - counts.decoding, counts.decoding, load.at_us)


LEAST_LOADED = Rival(
    LeastLoaded.name, LeastLoaded, "join the shortest queue, regions telling theirs every 100 ms"
)
