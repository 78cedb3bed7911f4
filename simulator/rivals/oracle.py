"""The Oracle of the paper's Fig. 14: it "forwards every request to the least-loaded worker in the whole
worker pool, so its peak of 1.02 is the best lower bound any scheme can achieve".

Load is what a worker still has to prefill, known exactly and at once, whatever the distance; among idle
workers the one that was given least so far, in compute time, is the least loaded. It is a bound on balance
alone: it looks at no cache and at no way, and so is far from the best there is in any other respect.
"""

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model.token_chain import TokenChain
from simulator.request import Request
from simulator.rivals.chunk_names import page_size_of
from simulator.rivals.exact_queues import ExactQueues
from simulator.rivals.holder_masks import Depth
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site


class Oracle(Indifferent):
    """Least loaded by exact knowledge."""

    name = "oracle"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._page_size = page_size_of(site.fleet)
        self._exact = ExactQueues(site)
        self._given_us: NDArray[np.float64] = np.zeros(site.fleet.workers)
        self._refusals = Refusals()

    def arrive(self, request: Request) -> None:
        """Sends it to the least loaded worker of the world."""
        self._place(request, [])

    def first_token(self, request: Request, worker: int) -> None:
        """Its prefill is over."""
        self._exact.queues.begun(request.id, worker, self._site.now_us)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Forgets who refused it."""
        self.lost(request, worker)

    def lost(self, request: Request, worker: int) -> None:
        """The same."""
        self.first_token(request, worker)
        self._refusals.forget(request.id)

    def refused(self, request: Request, worker: int) -> None:
        """Tries the others; gives up after all."""
        self.first_token(request, worker)
        self._place(request, self._refusals.add(request.id, worker))

    def _place(self, request: Request, tried: list[int]) -> None:
        if len(tried) == self._site.fleet.workers:
            self._refusals.forget(request.id)
            self._site.fail(request)
            return
        queue_us = self._exact.remaining_us()
        queue_us[tried] = np.inf
        worker = int(np.lexsort((self._given_us, queue_us))[0])
        chain = TokenChain(request.prompt, self._page_size)
        reusable = (len(request.prompt) - 1) // self._page_size
        blocks = self._exact.engine(worker).cache.match(chain, reusable)
        match = Depth(blocks, blocks)
        self._exact.give(request, worker, match, self._page_size)
        self._given_us[worker] += self._exact.queues.work_us(
            worker, len(request.prompt), match, self._page_size
        )
        self._site.dispatch(request, worker)


ORACLE = Rival(
    Oracle.name, Oracle, "the paper's Fig. 14: the least loaded worker of the world", is_bound=True
)
