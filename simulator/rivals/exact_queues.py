"""The prefill queue of every worker as it is this instant, for bounds."""

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model import Engine
from simulator.request import Request
from simulator.rivals.holder_masks import Depth
from simulator.rivals.prefill_queues import PrefillQueues
from simulator.router import Site


class ExactQueues:
    """What was given and is not computed yet; where something is overdue, the engine itself says what waits.

    A prefill ends when expected unless its engine decodes beside it, decodes as much as it can, or has lost
    what was to be reused.
    """

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._engines: list[Engine] = []
        self.queues = PrefillQueues(fleet)
        self._region = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self._way_us = [[round(1000.0 * ms) for ms in row] for row in fleet.plan.wan_ms]

    def engine(self, worker: int) -> Engine:
        """A worker's engine, always at the present: it is woken whenever something happens in it."""
        if not self._engines:
            self._engines = [self._site.engine_now(one) for one in range(self._site.fleet.workers)]
        return self._engines[worker]

    def remaining_us(self) -> NDArray[np.float64]:
        """Return float64[W], microseconds of prefill in front of a request that were there now."""
        now_us, here = self._site.now_us, self._site.here
        self.queues.floor_us[:] = 0.0
        for worker, given in enumerate(self.queues.given):
            if not given:
                continue
            oldest = next(iter(given.values()))
            if oldest.ends_us + self._way_us[self._region[worker]][here] < now_us:
                self.queues.floor_us[worker] = self._left_us(worker, now_us)
        return self.queues.remaining_us(now_us)

    def used_tokens(self) -> list[int]:
        """Return what is in use of each worker's KV pool."""
        now_us = self._site.now_us
        return [self.engine(worker).queue_load(now_us).used_tokens for worker in range(len(self._region))]

    def _left_us(self, worker: int, now_us: int) -> float:
        """Work of what has not begun, and half of what has: the oldest of what was given may have."""
        load = self.engine(worker).load(now_us)
        begun = load.running - load.decoding
        not_begun = load.waiting + self.queues.on_the_way(worker, now_us)
        given = self.queues.given[worker]
        oldest = [one.work_us for one in islice(given.values(), max(0, len(given) - not_begun))]
        running = oldest[-begun:] if begun else []
        return self.queues.given_us[worker] - sum(oldest) + 0.5 * sum(running)

    def give(self, request: Request, worker: int, match: Depth, page_size: int) -> int:
        """A request leaves from here for a worker; returns its work there in microseconds."""
        work_us = self.queues.work_us(worker, len(request.prompt), match, page_size)
        way_us = self._way_us[self._site.here][self._region[worker]]
        self.queues.give(request.id, worker, work_us, self._site.now_us + way_us)
        return work_us
