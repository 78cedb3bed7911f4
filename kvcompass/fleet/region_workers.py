"""Which workers of the plan a region's queue vector speaks of."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.plan.model import Plan
from kvcompass.plan.seats import is_vacant

STRANGER = -1
"""In place of a worker that is not of the region, or of no plan."""


class RegionWorkers:
    """Finds a region's workers by id.

    A region names the same ones in the same order again and again, so what was found last is kept for each.
    """

    def __init__(self, plan: Plan) -> None:
        self._places: dict[str, dict[str, int]] = {region: {} for region in plan.regions}
        for place, worker in enumerate(plan.workers):
            if not is_vacant(worker):
                self._places[worker.region][worker.id] = place
        self._last: dict[str, tuple[tuple[str, ...], NDArray[np.int64], int]] = {}

    def find(self, region: str, worker_ids: tuple[str, ...]) -> tuple[NDArray[np.int64], int]:
        """int64[n]: the places of these workers in the plan or `STRANGER`; and the number of strangers.

        `region` is one of the plan.
        """
        last = self._last.get(region)
        if last is None or last[0] != worker_ids:
            places = self._places[region]
            found = np.array([places.get(worker_id, STRANGER) for worker_id in worker_ids], np.int64)
            last = self._last[region] = (worker_ids, found, int((found == STRANGER).sum()))
        return last[1], last[2]
