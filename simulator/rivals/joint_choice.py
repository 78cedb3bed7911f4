"""The product's joint score over a fleet that one decider knows as a whole."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.routing.rotation import Rotation
from kvcompass.score import JointScore, ScoreInputs
from kvcompass.score.joint import Standings
from simulator.fleet import Fleet
from simulator.rivals.active_blocks import ActiveBlocks
from simulator.rivals.holder_masks import Depth, as_matches

_NOTHING = Depth(0, 0)


class Choice(NamedTuple):
    """A worker, and what of the prompt it will have when its turn comes."""

    worker: int
    match: Depth


class JointChoice:
    """Scores with the plan's constants and with full belief in every match (paper 3.4)."""

    def __init__(self, fleet: Fleet, page_size: int) -> None:
        plan = fleet.plan
        workers = range(fleet.workers)
        regions = [fleet.region_of(worker) for worker in workers]
        there = np.array([[row[region] for region in regions] for row in plan.wan_ms])
        back = np.array([[plan.wan_ms[r][origin] for r in regions] for origin in range(fleet.regions)])
        charges = there + back if plan.routing.wan_charge == "round_trip" else there
        rate = np.array([worker.prefill_ms_per_token for worker in plan.workers])
        reload_rate = np.array([worker.reload_ms_per_token for worker in plan.workers])
        context_rate = np.array([worker.context_ms_per_token for worker in plan.workers])
        belief = np.ones(fleet.workers)
        self._page_size = page_size
        self._workers = fleet.workers
        self.context_tokens: Final[NDArray[np.float64]] = np.zeros(fleet.workers)
        """Tokens in use in each worker's KV pool, as far as is known; owned by the caller."""
        self._queue_ms: NDArray[np.float64] = np.zeros(fleet.workers)
        self._scores = [
            JointScore(
                ScoreInputs(
                    charge, self._queue_ms, rate, reload_rate, belief, context_rate, self.context_tokens
                ),
                plan.routing,
            )
            for charge in np.ascontiguousarray(charges)
        ]
        everyone: NDArray[np.bool_] = np.ones(fleet.workers, np.bool_)
        self._standings = Standings(everyone.copy(), ~everyone, ~everyone)
        self._turns = [Rotation(0) for _ in range(fleet.regions)]
        """By origin, as each edge of the product has its own."""
        self._coming = ActiveBlocks(fleet.workers)
        """Prompts under way: what lies before a request in a queue will be there when its turn comes."""
        self._names: dict[int, tuple[list[int], int]] = {}

    def choose(
        self,
        origin: int,
        prompt_tokens: int,
        names: list[int],
        found: dict[int, Depth],
        queue_us: NDArray[np.float64],
        tried: list[int],
    ) -> Choice:
        """Return the worker of least score for a request of region `origin`, among those not tried.

        Args:
            origin: Where the request's edge is.
            prompt_tokens: L.
            names: Of the prompt's chunks (`chunk_names`).
            found: What workers hold.
            queue_us: float64[W].
            tried: Not all workers.
        """
        np.divide(queue_us, 1000.0, out=self._queue_ms)
        candidate = self._standings.candidate
        candidate[:] = True
        candidate[tried] = False
        reusable = (prompt_tokens - 1) // self._page_size
        coming = {worker: min(blocks, reusable) for worker, blocks in self._coming.shared(names).items()}
        expected: NDArray[np.int32] = np.zeros(self._workers, np.int32)
        for worker, blocks in coming.items():
            expected[worker] = blocks * self._page_size
        weighed = self._scores[origin].weigh(
            as_matches(found, self._workers, self._page_size),
            expected,
            self._standings,
            prompt_tokens,
            self._turns[origin].turn,
        )
        self._turns[origin].passed(weighed.worker)
        held = found.get(weighed.worker, _NOTHING)
        blocks = coming.get(weighed.worker, 0)
        return Choice(weighed.worker, Depth(blocks, blocks) if blocks > held.any_tier else held)

    def going(self, request_id: int, names: list[int], worker: int) -> None:
        """A request goes there."""
        self._names[request_id] = names, worker
        self._coming.add(names, worker)

    def gone(self, request_id: int) -> None:
        """It is prefilled, or went no further."""
        known = self._names.pop(request_id, None)
        if known is not None:
            self._coming.remove(*known)
