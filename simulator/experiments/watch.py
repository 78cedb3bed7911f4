"""Looks at a run from outside, and changes nothing of it."""

from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model.token_chain import TokenChain
from simulator.clock import Priority
from simulator.request import Request
from simulator.results.outcome import Watched
from simulator.source import RequestSource
from simulator.world import World

SAMPLE_US: Final = 1_000_000
"""Virtual time between two looks at the engines."""
PROBE_EVERY: Final = 20
"""Of so many requests one is looked up in every cache of the world, the instant before it arrives."""


class WatchedSource:
    """A `RequestSource` that tells a watch of the requests it gives out."""

    def __init__(self, source: RequestSource) -> None:
        self.label: Final = source.label
        self.watch: Watch | None = None
        self._source = source

    def next(self) -> Request | None:
        """See `RequestSource`."""
        return self._told(self._source.next())

    def ended(self, request: Request, now_us: int) -> Request | None:
        """See `RequestSource`."""
        return self._told(self._source.ended(request, now_us))

    def _told(self, request: Request | None) -> Request | None:
        if request is not None and self.watch is not None:
            self.watch.expect(request)
        return request


class Watch:
    """Samples a world's engines, links and caches. Begins before the run."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._at_us: list[int] = []
        self._busy_us: list[NDArray[np.int64]] = []
        self._prefill_busy_us: list[int] = []
        self._generated: list[int] = []
        self._wan_bytes: list[int] = []
        self._reusable: list[tuple[int, int, int]] = []
        self._regions = [world.fleet.region_of(worker) for worker in range(world.fleet.workers)]
        world.clock.at(world.clock.now_us, Priority.CHECK, self._sample)

    def expect(self, request: Request) -> None:
        """A request will arrive."""
        if request.id % PROBE_EVERY == 0:
            self._world.clock.at(request.arrives_us, Priority.TIMER, partial(self._probe, request))

    def watched(self) -> Watched:
        """What was seen."""
        workers = self._world.fleet.workers
        return Watched(
            at_us=np.array(self._at_us, np.int64),
            busy_us=np.array(self._busy_us, np.int64).reshape(-1, workers),
            prefill_busy_us=np.array(self._prefill_busy_us, np.int64),
            generated=np.array(self._generated, np.int64),
            wan_bytes=np.array(self._wan_bytes, np.int64),
            reusable=np.array(self._reusable, np.int64).reshape(-1, 3),
        )

    def _sample(self) -> None:
        world = self._world
        loads = [host.engine.load(world.clock.now_us) for host in world.hosts]
        self._at_us.append(world.clock.now_us)
        self._busy_us.append(
            np.array([load.prefill_busy_us + load.decode_busy_us for load in loads], np.int64)
        )
        self._prefill_busy_us.append(sum(load.prefill_busy_us for load in loads))
        answering = [host.engine.load(world.clock.now_us) for host in world.decoders.hosts]
        self._generated.append(sum(load.generated_tokens for load in (*loads, *answering)))
        sent = world.network.bytes_sent
        self._wan_bytes.append(
            sum(size for a, row in enumerate(sent) for b, size in enumerate(row) if a != b)
        )
        world.clock.at(world.clock.now_us + SAMPLE_US, Priority.CHECK, self._sample)

    def _probe(self, request: Request) -> None:
        """Note the longest prefix that some worker of the request's region holds, and some other."""
        here = elsewhere = 0
        chains: dict[int, TokenChain] = {}
        for host, region in zip(self._world.hosts, self._regions, strict=True):
            size = host.engine.config.page_size
            if size not in chains:
                chains[size] = TokenChain(request.prompt, size)
            held = size * host.engine.cache.match(chains[size], (len(request.prompt) - 1) // size)
            if region == request.region:
                here = max(here, held)
            else:
                elsewhere = max(elsewhere, held)
        self._reusable.append((request.id, here, elsewhere))
