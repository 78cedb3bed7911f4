"""What remains of the prefills that one who decides for the whole fleet has given to each worker."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.backlog import Backlog
from simulator.fleet import Fleet
from simulator.rivals.holder_masks import Depth


class Given(NamedTuple):
    """A request that has no first token yet, as far as is known."""

    worker: int
    work_us: int
    lands_us: int
    ends_us: int
    """When its prefill is over, if all goes as expected."""


class PrefillQueues:
    """Engines prefill one after another and in order of arrival; how long each takes is in their timing."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._backlog = Backlog(fleet.workers)
        self._free_us = [0] * fleet.workers
        self.given: Final[list[dict[int, Given]]] = [{} for _ in range(fleet.workers)]
        """By worker and request, in the order of giving."""
        self.given_us: Final[list[int]] = [0] * fleet.workers
        """Their work, summed."""
        self._landing: list[dict[int, int]] = [{} for _ in range(fleet.workers)]
        """When those land that had not landed at the last look, by worker and request."""
        self.floor_us: Final[NDArray[np.float64]] = np.zeros(fleet.workers)
        """What a queue is at least, by any other knowledge; owned by the caller."""

    def work_us(self, worker: int, prompt_tokens: int, match: Depth, page_size: int) -> int:
        """Return how long a worker takes to prefill a prompt of which it has so much."""
        cached = match.any_tier * page_size
        timing = self._fleet.engines[worker].timing
        reload = timing.reload_us((match.any_tier - match.vram) * page_size)
        return timing.prefill_us(cached, prompt_tokens - cached) + reload

    def give(self, request_id: int, worker: int, work_us: int, lands_us: int) -> None:
        """A request leaves and will be at its worker at `lands_us`."""
        ends_us = max(lands_us, self._free_us[worker]) + work_us
        self._free_us[worker] = ends_us
        self.given[worker][request_id] = Given(worker, work_us, lands_us, ends_us)
        self.given_us[worker] += work_us
        self._landing[worker][request_id] = lands_us
        self._backlog.add(request_id, worker, work_us, lands_us)

    def begun(self, request_id: int, worker: int, now_us: int) -> None:
        """It has a first token, or has left the worker."""
        given = self.given[worker].pop(request_id, None)
        if given is not None:
            self.given_us[worker] -= given.work_us
            self._landing[worker].pop(request_id, None)
            self._backlog.remove(request_id, worker, now_us)

    def on_the_way(self, worker: int, now_us: int) -> int:
        """Return how many requests a worker was given that have not reached it."""
        landing = self._landing[worker]
        for request_id in [one for one, lands_us in landing.items() if lands_us <= now_us]:
            del landing[request_id]
        return len(landing)

    def remaining_us(self, now_us: int) -> NDArray[np.float64]:
        """Return float64[W]: prefill work in front of a new request at each worker."""
        self._backlog.age(now_us)
        work_us, began_us = self._backlog.work_us
        done_us = np.maximum(now_us - began_us, 0)
        return np.maximum(work_us - np.minimum(done_us, work_us), self.floor_us)
