"""The clairvoyant bound: the product's cost model with the exact state of the whole fleet, and no delay.

Every edge knows what every engine's cache holds this instant, what is on its way to each, and how long each
is still busy with prefills; it then takes the worker of least joint score (paper 3.4, `kvcompass.score`) with
the plan's constants. Nothing but the cost model and the links separate it from the best: what KVCompass loses
to this bound is the price of knowing things late, in part, or by estimates. It is greedy, one request after
another, and so no bound on policies that would plan ahead.
"""

from collections.abc import Sequence

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model.token_chain import TokenChain
from simulator.request import Request
from simulator.rivals.block_holders import BlockHolders
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.exact_queues import ExactQueues
from simulator.rivals.holder_masks import Depth, depths
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.joint_choice import JointChoice
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site


class Clairvoyant(Indifferent):
    """Least joint score by exact knowledge."""

    name = "clairvoyant"

    def __init__(self, site: Site) -> None:
        self._site = site
        self._workers = site.fleet.workers
        self._page_size = page_size_of(site.fleet)
        self._exact = ExactQueues(site)
        self._holders = BlockHolders(self._workers)
        """Who may hold what, and in which tier: engines tell of tiers in events alone."""
        self._choice = JointChoice(site.fleet, self._page_size)
        self._refusals = Refusals()

    def arrive(self, request: Request) -> None:
        """Sends it to the worker of least score."""
        self._place(request, [])

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """Known everywhere at once."""
        self._holders.apply(worker, events)

    def first_token(self, request: Request, worker: int) -> None:
        """Its prefill is over."""
        self._exact.queues.begun(request.id, worker, self._site.now_us)
        self._choice.gone(request.id)

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
        if len(tried) == self._workers:
            self._refusals.forget(request.id)
            self._site.fail(request)
            return
        page, prompt = self._page_size, request.prompt
        names = chunk_names(prompt, page)
        held, queue_us = self._held(request, names), self._exact.remaining_us()
        self._choice.context_tokens[:] = self._exact.used_tokens()
        choice = self._choice.choose(self._site.here, len(prompt), names, held, queue_us, tried)
        self._exact.give(request, choice.worker, choice.match, page)
        self._choice.going(request.id, names, choice.worker)
        self._site.dispatch(request, choice.worker, choice.match.any_tier * page)

    def _held(self, request: Request, names: list[int]) -> dict[int, Depth]:
        """What the engines' caches hold of a prompt.

        Each tells of a prompt's blocks as soon as it has computed them, but a little late of an answer's and
        of those that leave: whoever has told of the first block is looked into.
        """
        chain = TokenChain(request.prompt, self._page_size)
        reusable = (len(request.prompt) - 1) // self._page_size
        found = {}
        for worker, told in depths(self._holders.masks(names[:reusable]), self._workers).items():
            blocks = self._exact.engine(worker).cache.match(chain, reusable)
            if blocks:
                in_vram = told.vram if told.vram < told.any_tier else blocks
                found[worker] = Depth(min(in_vram, blocks), blocks)
        return found


CLAIRVOYANT = Rival(
    Clairvoyant.name, Clairvoyant, "the product's joint score (paper 3.4), knowing all at once", is_bound=True
)
