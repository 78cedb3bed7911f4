"""NVIDIA Dynamo: its KV router in every region, "periodically broadcasts to get the global view" (paper 5.1).

Follows the default selector of `ai-dynamo/dynamo` (`lib/kv-router/src/scheduling/selector/default.rs`, and
"Router Design" in its documentation) with the defaults of `KvRouterConfig`. The cost of a worker, in blocks:

    prefill_load_scale * max(0, raw_prefill - credit) + decode

    raw_prefill: the prompt tokens this worker is still to prefill and the request's own, over the block size;
    credit: overlap_score_credit a block of the prompt that its GPU holds, host_cache_hit_weight for each
        further one that its host memory holds, by the engines' cache events;
    decode: distinct blocks of the prompts that it is answering, the request's own included.

The least cost wins, equals by chance (`router_temperature` 0). A router counts what it has routed itself
until the first token and the end. Dynamo's routers hear events and, with `router_replica_sync`, one another's
requests at once, within a cluster; its relay between data centres is experimental and forwards no requests.
So, as the paper does, each region's router hears its own engines at once and tells all others what changed
every period: 100 ms, the paper's Delta. It knows no distances. Its `router_queue_threshold`, which lets
requests wait in the router while every worker has more than 16 batches to prefill, is left out.

At its best within a region: overlap and load in one sum. At its worst across the WAN: it sends a short match
over an ocean as gladly as next door, and to loads that were told a while ago.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_events import EngineEvent
from simulator.request import Request
from simulator.rivals.active_blocks import ActiveBlocks
from simulator.rivals.broadcast import Broadcast, Told
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.holder_masks import depths
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.lagged_holders import CHANGE_BYTES, Change, LaggedHolders
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site
from simulator.streams import random_stream

OVERLAP_SCORE_CREDIT: Final = 1.0
HOST_CACHE_HIT_WEIGHT: Final = 0.75
PREFILL_LOAD_SCALE: Final = 1.0
_LOAD_BYTES: Final = 12
"""A worker and two counts."""

Load = NDArray[np.float64]
"""float64[2, W]: prompt tokens to prefill, and distinct blocks in use."""


class _Flight(NamedTuple):
    worker: int
    names: list[int]
    prefill_tokens: int


class _RegionRouter:
    def __init__(self, workers: int, regions: int) -> None:
        self.active = ActiveBlocks(workers)
        self.own: Load = np.zeros((2, workers))
        self.told: NDArray[np.float64] = np.zeros((regions, 2, workers))
        """What each other router has last told of the same."""
        self.flights: dict[int, _Flight] = {}
        self.prefilling: dict[int, _Flight] = {}
        self.refusals = Refusals()


class _News(NamedTuple):
    change: Change | None
    load: Load


class Dynamo(Indifferent):
    """One router a region over all workers."""

    name = "dynamo"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._workers = fleet.workers
        self._page_size = page_size_of(fleet)
        self._region = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self._holders = LaggedHolders(fleet.workers, fleet.regions)
        self._routers = [_RegionRouter(fleet.workers, fleet.regions) for _ in range(fleet.regions)]
        self._streams = [random_stream(site.seed, f"dynamo {region}") for region in range(fleet.regions)]
        Broadcast(site, self._tell, self._hear)

    def arrive(self, request: Request) -> None:
        """Sends it to the worker of least cost."""
        self._place(request, [])

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """The region's router hears them at once."""
        self._holders.apply(self._region[worker], worker, events)

    def first_token(self, request: Request, worker: int) -> None:
        """Its prompt is prefilled."""
        self._prefilled(self._routers[self._site.here], request)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Its blocks are in use no longer."""
        self.lost(request, worker)

    def lost(self, request: Request, worker: int) -> None:
        """The same."""
        router = self._routers[self._site.here]
        self._ended(router, request)
        router.refusals.forget(request.id)

    def refused(self, request: Request, worker: int) -> None:
        """Tries the others; gives up after all."""
        router = self._routers[self._site.here]
        self._ended(router, request)
        self._place(request, router.refusals.add(request.id, worker))

    def _place(self, request: Request, tried: list[int]) -> None:
        here = self._site.here
        router = self._routers[here]
        if len(tried) == self._workers:
            router.refusals.forget(request.id)
            self._site.fail(request)
            return
        page = self._page_size
        names = chunk_names(request.prompt, page)
        blocks = -(-len(request.prompt) // page)
        load = router.own + router.told.sum(axis=0)
        prefill = (load[0] + len(request.prompt)) / page
        decode = load[1] + blocks
        reusable = names[: (len(request.prompt) - 1) // page]
        found = depths(self._holders.masks(here, reusable), self._workers)
        for worker, depth in found.items():
            prefill[worker] -= OVERLAP_SCORE_CREDIT * depth.vram
            prefill[worker] -= HOST_CACHE_HIT_WEIGHT * (depth.any_tier - depth.vram)
        for worker, shared in router.active.shared(names).items():
            decode[worker] -= shared
        cost = PREFILL_LOAD_SCALE * np.maximum(prefill, 0.0) + decode
        cost[tried] = np.inf
        cheapest = np.flatnonzero(cost == cost.min())
        worker = int(cheapest[self._streams[here].randrange(len(cheapest)) if len(cheapest) > 1 else 0])
        claimed = found[worker].any_tier * page if worker in found else 0
        flight = _Flight(worker, names, len(request.prompt) - claimed)
        router.flights[request.id] = router.prefilling[request.id] = flight
        router.own[0, worker] += flight.prefill_tokens
        router.active.add(names, worker)
        router.own[1, worker] = router.active.distinct(worker)
        self._site.dispatch(request, worker, claimed)

    def _prefilled(self, router: _RegionRouter, request: Request) -> None:
        flight = router.prefilling.pop(request.id, None)
        if flight is not None:
            router.own[0, flight.worker] -= flight.prefill_tokens

    def _ended(self, router: _RegionRouter, request: Request) -> None:
        self._prefilled(router, request)
        flight = router.flights.pop(request.id)
        router.active.remove(flight.names, flight.worker)
        router.own[1, flight.worker] = router.active.distinct(flight.worker)

    def _tell(self) -> Told[_News]:
        here = self._site.here
        change = self._holders.tell(here)
        load = self._routers[here].own.copy()
        busy = int(np.count_nonzero(load.any(axis=0)))
        return _News(change, load), CHANGE_BYTES * len(change or ()) + _LOAD_BYTES * busy

    def _hear(self, source: int, news: _News) -> None:
        here = self._site.here
        if news.change is not None:
            self._holders.heard(here, news.change)
        self._routers[here].told[source] = news.load


DYNAMO = Rival(
    Dynamo.name,
    Dynamo,
    "ai-dynamo's KvRouterConfig defaults (credit 1, host 0.75, scale 1), broadcast each 100 ms",
)
