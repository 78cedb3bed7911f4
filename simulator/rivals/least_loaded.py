"""The worker with the shortest queue, as far as an edge can know: join-the-shortest-queue over the WAN.

Follows least-connections load balancers: an edge asks the engines of its own region at every request, and
regions tell each other their engines' loads every period (the paper's Delta). What an edge has sent to a
worker and a load cannot show yet is added to it. Caches are not looked at, and distance only among equals.

At its best where prompts share nothing and prefill is all there is. At its worst where prefixes are long: it
computes them again on every worker.
"""

from collections import deque

from kvcompass.engine_model import ModelLoad
from simulator.reading import Reading
from simulator.request import Request
from simulator.rivals.broadcast import Broadcast, Told
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site

_LOAD_BYTES = 16
"""A worker and two counts."""

Loads = dict[int, Reading[ModelLoad]]


class LeastLoaded(Indifferent):
    """Counts requests without a first token; among equals those that decode; then ways; then turns."""

    name = "least_loaded"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._workers = range(fleet.workers)
        self._region = [fleet.region_of(worker) for worker in self._workers]
        self._way_us = [[round(1000.0 * ms) for ms in row] for row in fleet.plan.wan_ms]
        self._told: list[dict[int, tuple[int, int, int]]] = [{} for _ in range(fleet.regions)]
        """In each region: `_seen` of workers elsewhere."""
        self._sent_us: list[list[deque[int]]] = [
            [deque() for _ in self._workers] for _ in range(fleet.regions)
        ]
        """When each region sent its last requests to each worker, those that a load may not show."""
        self._turns = [0] * fleet.regions
        self._refusals = [Refusals() for _ in range(fleet.regions)]
        Broadcast(site, self._tell, self._hear)

    def arrive(self, request: Request) -> None:
        """Sends it to the shortest queue."""
        self._place(request, ())

    def refused(self, request: Request, worker: int) -> None:
        """Sends it to the next shortest; gives up after all."""
        self._place(request, self._refusals[self._site.here].add(request.id, worker))

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Forgets who refused it."""
        self._refusals[self._site.here].forget(request.id)

    def _place(self, request: Request, tried: "tuple[int, ...] | list[int]") -> None:
        here = self._site.here
        ways, told, sent_us = self._way_us[here], self._told[here], self._sent_us[here]
        self._turns[here] += 1
        turn, count = self._turns[here], len(self._workers)
        best: tuple[int, int, int, int] | None = None
        chosen = -1
        unknown = []
        for worker in self._workers:
            if worker in tried:
                continue
            region = self._region[worker]
            seen = _seen(self._site.load(worker)) if region == here else told.get(worker)
            if seen is None:
                unknown.append(worker)
                continue
            unanswered, decoding, at_us = seen
            sent = sent_us[worker]
            while sent and sent[0] + ways[region] <= at_us:
                sent.popleft()
            key = (unanswered + len(sent), decoding, ways[region], (worker + turn) % count)
            if best is None or key < best:
                best, chosen = key, worker
        if chosen < 0 and unknown:
            chosen = min(unknown, key=lambda worker: (ways[self._region[worker]], (worker + turn) % count))
        if chosen < 0:
            self._refusals[here].forget(request.id)
            self._site.fail(request)
            return
        sent_us[chosen].append(self._site.now_us)
        self._site.dispatch(request, chosen)

    def _tell(self) -> Told[Loads] | None:
        here = self._site.here
        loads = {w: self._site.load(w) for w in self._workers if self._region[w] == here}
        return (loads, _LOAD_BYTES * len(loads)) if loads else None

    def _hear(self, source: int, loads: Loads) -> None:
        told = self._told[self._site.here]
        for worker, load in loads.items():
            told[worker] = _seen(load)


def _seen(load: Reading[ModelLoad]) -> tuple[int, int, int]:
    """Return the requests without a first token, those that decode, and when that was so."""
    counts = load.value
    return counts.waiting + counts.running - counts.decoding, counts.decoding, load.at_us


LEAST_LOADED = Rival(
    LeastLoaded.name, LeastLoaded, "join the shortest queue, regions telling theirs every 100 ms"
)
