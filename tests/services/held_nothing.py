"""A worker that holds nothing, for report streams."""

from kvcompass.plan.model import Worker
from kvcompass.roles.told_holdings import NOTHING_TOLD


class HeldNothing:
    """A `ReportedWorker`."""

    vouches = True
    epoch = 1
    told = NOTHING_TOLD

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
