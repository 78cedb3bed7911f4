"""A worker that holds nothing, for report streams."""

import numpy as np
import numpy.typing as npt

from kvcompass.plan.model import Worker


class HeldNothing:
    """A `ReportedWorker`, and its `ToldHoldings`."""

    vouches = True
    epoch = 1

    def __init__(self, worker: Worker) -> None:
        self.worker = worker

    @property
    def told(self) -> "HeldNothing":
        return self

    def digest(self, _shard: int) -> int:
        return 0

    def count(self, _shard: int) -> int:
        return 0

    def report(self, _shard: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint8)
