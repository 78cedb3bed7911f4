"""PlanetServe: every node keeps a hash radix tree of what all nodes have cached, and a load factor of each.

Follows Fang et al., "PlanetServe: A decentralized, scalable, and privacy-preserving overlay for democratizing
large language model serving" (NSDI 2026) by its authors' prototypes (`fffeifang/PlanetServe`: in `eval`,
`workload/workload_measurer_online.py` with `--dispatch lb`, and `hrt+lb/HashRadixTree`), with their
parameters:

- load factor = the worker's recent latency (a moving average, 7/8 old and 1/8 new) times the batches, of
  2,048 tokens, that its queued prompts fill;
- a prompt goes to the worker with the longest match that is not overloaded, so to a shorter match where
  holders of the longest are; among equal matches to the least factor; without any to the least factor of all.
  What is left equal goes to the worker that was given least so far;
- overloaded is who is above the 80th percentile of load factors: of all workers as in `HashRadixTree`, for
  among the holders alone, as in the other prototype, a single one never is. Who has no more than one batch
  queued is not overloaded (ours).

An edge stands for the overlay's nodes of its region. Latency is what it measures itself, of its own requests
(where it has not, the mean of the others, which prototypes draw by chance); queued tokens are its own, known
at once, and the others' as told. Trees and tokens are exchanged between regions each 100 ms (the period is
ours: the paper's Delta). Chunks are the engines' blocks instead of the prototypes' 10 tokens, and trees
follow the engines' caches instead of each node's last 10 prompts; the overlay's onion routing costs no time
here. All of this is in its favour.

At its best where prefixes are long and as popular as one another, wherever they are held. At its worst where
one is popular and just computed, until its holder shows among the most loaded, and where answers take a round
trip over an ocean that it does not know of.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_events import EngineEvent
from simulator.request import Request
from simulator.rivals.broadcast import Broadcast, Told
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.holder_masks import depths
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.lagged_holders import CHANGE_BYTES, Change, LaggedHolders
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site

BATCH_TOKENS: Final = 2_048
NEW_LATENCY_WEIGHT: Final = 0.125
OVERLOADED_ABOVE_PERCENT: Final = 80
_TOKENS_BYTES: Final = 8
"""A worker and its queued tokens."""


class _Edge:
    def __init__(self, workers: int, regions: int) -> None:
        self.latency_ms: NDArray[np.float64] = np.zeros(workers)
        self.queued: NDArray[np.float64] = np.zeros(workers)
        """Prompt tokens of own requests without a first token."""
        self.told: NDArray[np.float64] = np.zeros((regions, workers))
        self.given: NDArray[np.float64] = np.zeros(workers)
        """Requests, ever."""
        self.sent_us: dict[int, int] = {}
        self.waiting: set[int] = set()
        self.refusals = Refusals()

    def batches(self) -> NDArray[np.float64]:
        """Queued at each worker."""
        batches: NDArray[np.float64] = np.ceil((self.queued + self.told.sum(axis=0)) / BATCH_TOKENS)
        return batches

    def recent_ms(self) -> NDArray[np.float64]:
        """Latency of each worker: the mean of the others' where none was seen yet."""
        seen = self.latency_ms > 0.0
        return np.where(seen, self.latency_ms, self.latency_ms[seen].mean() if seen.any() else 1.0)


class _News(NamedTuple):
    change: Change | None
    queued: NDArray[np.float64]


def choose(
    held: dict[int, int],
    batches: NDArray[np.float64],
    factors: NDArray[np.float64],
    given: NDArray[np.float64],
) -> int:
    """Return the worker for a prompt.

    Args:
        held: Blocks of it by worker, where there are any.
        batches: float64[W], queued.
        factors: float64[W], load factors; infinite for those that are out of the question.
        given: float64[W], requests so far.
    """
    most = np.sort(factors)[-(-OVERLOADED_ABOVE_PERCENT * len(factors) // 100) - 1]
    eligible = [worker for worker in held if batches[worker] <= 1 or factors[worker] <= most]
    if not eligible:
        return int(np.lexsort((given, factors))[0])
    return min(eligible, key=lambda worker: (-held[worker], factors[worker], given[worker]))


class PlanetServe(Indifferent):
    """Trees of the whole fleet at every edge."""

    name = "planetserve"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._workers = fleet.workers
        self._page_size = page_size_of(fleet)
        self._region = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self._trees = LaggedHolders(fleet.workers, fleet.regions)
        self._edges = [_Edge(fleet.workers, fleet.regions) for _ in range(fleet.regions)]
        Broadcast(site, self._tell, self._hear)

    def arrive(self, request: Request) -> None:
        """Sends it by match and load factor."""
        self._place(request, [])

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """A node knows its own cache."""
        self._trees.apply(self._region[worker], worker, events)

    def first_token(self, request: Request, worker: int) -> None:
        """It is queued no longer."""
        self._started(self._edges[self._site.here], request, worker)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Tells how long it took."""
        edge = self._edges[self._site.here]
        self._started(edge, request, worker)
        took_ms = (self._site.now_us - edge.sent_us.pop(request.id)) / 1000.0
        known_ms = edge.latency_ms[worker]
        weight = NEW_LATENCY_WEIGHT if known_ms else 1.0
        edge.latency_ms[worker] = known_ms + weight * (took_ms - known_ms)
        edge.refusals.forget(request.id)

    def lost(self, request: Request, worker: int) -> None:
        """It is queued no longer, and has not said how long it would have taken."""
        edge = self._edges[self._site.here]
        self._started(edge, request, worker)
        edge.sent_us.pop(request.id, None)
        edge.refusals.forget(request.id)

    def refused(self, request: Request, worker: int) -> None:
        """Tries the others; gives up after all."""
        edge = self._edges[self._site.here]
        self._started(edge, request, worker)
        self._place(request, edge.refusals.add(request.id, worker))

    def _place(self, request: Request, tried: list[int]) -> None:
        here = self._site.here
        edge = self._edges[here]
        if len(tried) == self._workers:
            edge.refusals.forget(request.id)
            self._site.fail(request)
            return
        page = self._page_size
        names = chunk_names(request.prompt, page)[: (len(request.prompt) - 1) // page]
        found = depths(self._trees.masks(here, names), self._workers)
        held = {worker: depth.any_tier for worker, depth in found.items() if worker not in tried}
        batches = edge.batches()
        factors = edge.recent_ms() * batches
        factors[tried] = np.inf
        worker = choose(held, batches, factors, edge.given)
        edge.queued[worker] += len(request.prompt)
        edge.given[worker] += 1
        edge.waiting.add(request.id)
        edge.sent_us[request.id] = self._site.now_us
        self._site.dispatch(request, worker, held.get(worker, 0) * page)

    def _started(self, edge: _Edge, request: Request, worker: int) -> None:
        if request.id in edge.waiting:
            edge.waiting.remove(request.id)
            edge.queued[worker] -= len(request.prompt)

    def _tell(self) -> Told[_News]:
        here = self._site.here
        change = self._trees.tell(here)
        queued = self._edges[here].queued.copy()
        size = CHANGE_BYTES * len(change or ()) + _TOKENS_BYTES * int(np.count_nonzero(queued))
        return _News(change, queued), size

    def _hear(self, source: int, news: _News) -> None:
        here = self._site.here
        if news.change is not None:
            self._trees.heard(here, news.change)
        self._edges[here].told[source] = news.queued


PLANETSERVE = Rival(
    PlanetServe.name,
    PlanetServe,
    "Fang et al. (NSDI 2026), its authors' prototypes: load factor by 2,048 tokens, 80th percentile",
)
