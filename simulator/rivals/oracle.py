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
from simulator.rivals.active_blocks import ActiveBlocks
from simulator.rivals.chunk_names import chunk_names, page_size_of
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
        self._coming = ActiveBlocks(site.fleet.workers)
        self._names: dict[int, list[int]] = {}
        """Of the prompts without a first token."""
        self._refusals = Refusals()

    def arrive(self, request: Request) -> None:
        """Sends it to the least loaded worker of the world."""
        self._place(request, [])

    def first_token(self, request: Request, worker: int) -> None:
        """Its prefill is over."""
        self._exact.queues.begun(request.id, worker, self._site.now_us)
        names = self._names.pop(request.id, None)
        if names is not None:
            self._coming.remove(names, worker)

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
        work_us = self._exact.give(request, worker, self._match(request, worker), self._page_size)
        self._given_us[worker] += work_us
        self._site.dispatch(request, worker)

    def _match(self, request: Request, worker: int) -> Depth:
        """What the worker will have of a prompt when its turn comes: nothing is computed twice in a queue."""
        page, prompt = self._page_size, request.prompt
        reusable = (len(prompt) - 1) // page
        names = self._names[request.id] = chunk_names(prompt, page)
        coming = self._coming.shared(names).get(worker, 0)
        self._coming.add(names, worker)
        held = self._exact.engine(worker).cache.match(TokenChain(prompt, page), reusable)
        blocks = max(held, min(coming, reusable))
        return Depth(blocks, blocks)


ORACLE = Rival(
    Oracle.name, Oracle, "the paper's Fig. 14: the least loaded worker of the world", is_bound=True
)
