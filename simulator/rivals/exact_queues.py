"""The prefill queue of every worker as it is this instant, for bounds."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model import Engine
from simulator.request import Request
from simulator.rivals.holder_masks import Depth
from simulator.rivals.prefill_queues import PrefillQueues
from simulator.router import Site


class ExactQueues:
    """What was given and is not computed yet; where something is overdue, the engine itself says what waits.

    A prefill ends when expected unless an engine decodes as much as it can, or has lost what it would reuse.
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
        now_us = self._site.now_us
        floor_us = self.queues.floor_us
        for worker, given in enumerate(self.queues.given):
            floor_us[worker] = 0.0
            if not given:
                continue
            oldest = next(iter(given.values()))
            if oldest.ends_us + self._way_us[self._region[worker]][self._site.here] < now_us:
                waiting = self.engine(worker).load(now_us).waiting
                waiting += sum(1 for one in given.values() if one.lands_us > now_us)
                floor_us[worker] = sum(one.work_us for one in list(given.values())[-waiting:] if waiting)
        return self.queues.remaining_us(now_us)

    def give(self, request: Request, worker: int, match: Depth, page_size: int) -> None:
        """A request leaves from here for a worker."""
        work_us = self.queues.work_us(worker, len(request.prompt), match, page_size)
        way_us = self._way_us[self._site.here][self._region[worker]]
        self.queues.give(request.id, worker, work_us, self._site.now_us + way_us)
