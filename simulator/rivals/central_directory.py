"""Central Directory: "a centralized coordinator with global KV cache state" (paper 5.1), asked by every
request.

The coordinator stands in the region to which the way there and back is shortest on average over where
requests start. Every worker sends it its cache events as they happen and its load each 100 ms, over the
links; it hears of first tokens and ends from the edges. So its state is exact but for what is still on its
way. It decides by the product's own joint score (the paper names no rule), counting what it has assigned
itself at once, and estimating queues as the product's agents do; only the place where the decision is made
is another. An edge asks, waits for the answer, and dispatches.

At its best near the coordinator, or where prefills take much longer than a round trip. At its worst for short
prompts far from it: each pays the round trip before anything begins, whatever it hits.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kvcompass.engine_events import AllBlocksCleared, EngineEvent
from kvcompass.engine_model import QueueLoad
from kvcompass.roles.queue_estimate import QueueEstimate
from simulator.clock import Action
from simulator.engine_report import engine_load
from simulator.fleet import Fleet
from simulator.reading import Reading
from simulator.request import Request
from simulator.rivals.block_holders import BlockHolders
from simulator.rivals.chunk_names import chunk_names, page_size_of
from simulator.rivals.holder_masks import depths
from simulator.rivals.indifferent import Indifferent
from simulator.rivals.joint_choice import JointChoice
from simulator.rivals.lagged_holders import CHANGE_BYTES
from simulator.rivals.post import Post
from simulator.rivals.prefill_queues import PrefillQueues
from simulator.rivals.refusals import Refusals
from simulator.router import Rival, Site

LOAD_PERIOD_US: Final = 100_000
"""As engines' loads are told elsewhere in this comparison, and by the product's agents."""
_LOAD_BYTES: Final = 16
_MESSAGE_BYTES: Final = 64
_KEY_BYTES: Final = 8
"""A block's name: a question carries the prompt's, not the prompt."""


def best_place(fleet: Fleet) -> int:
    """Return the region that is nearest to all, there and back, weighted by where requests start."""
    wan = fleet.plan.wan_ms
    regions = range(fleet.regions)
    return min(
        regions,
        key=lambda place: sum(
            fleet.origin_weights[origin] * (wan[origin][place] + wan[place][origin]) for origin in regions
        ),
    )


class _Question(NamedTuple):
    request: Request
    origin: int
    names: list[int]


class CentralDirectory(Indifferent):
    """`_hear_*` and `_answer` run at the coordinator, everything else at edges and beside workers."""

    name = "central_directory"

    def __init__(self, site: Site) -> None:
        fleet = site.fleet
        self._site = site
        self._post = Post(site)
        self._workers = fleet.workers
        self._page_size = page_size_of(fleet)
        self._own: list[list[int]] = [[] for _ in range(fleet.regions)]
        for worker in range(fleet.workers):
            self._own[fleet.region_of(worker)].append(worker)
        self._region = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self._way_us = [[round(1000.0 * ms) for ms in row] for row in fleet.plan.wan_ms]
        self.place: Final = best_place(fleet)
        self._holders = BlockHolders(fleet.workers)
        self._queues = PrefillQueues(fleet)
        quantum = fleet.plan.lengths.quantum
        self._estimates = [QueueEstimate(each.prefill_ms_per_token, quantum) for each in fleet.plan.workers]
        self._choice = JointChoice(fleet, self._page_size)
        self._refusals = Refusals()
        for region in range(fleet.regions):
            if self._own[region]:
                site.begin(region, self._tell_loads)

    def arrive(self, request: Request) -> None:
        """Asks the coordinator."""
        question = self._question(request)
        self._send(self._answer, _MESSAGE_BYTES + _KEY_BYTES * len(question.names), question, ())

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """Sends them to the coordinator."""
        blocks = sum(len(event.hashes) for event in events if not isinstance(event, AllBlocksCleared))
        self._send(self._hear_events, CHANGE_BYTES * blocks, worker, events)

    def first_token(self, request: Request, worker: int) -> None:
        """Tells the coordinator."""
        self._send(self._hear_begun, _MESSAGE_BYTES, request.id, worker)

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Tells the coordinator."""
        self._send(self._hear_ended, _MESSAGE_BYTES, request.id, worker)

    def lost(self, request: Request, worker: int) -> None:
        """Tells the coordinator."""
        self._send(self._hear_ended, _MESSAGE_BYTES, request.id, worker)

    def refused(self, request: Request, worker: int) -> None:
        """Asks again."""
        question = self._question(request)
        self._send(self._hear_refused, _MESSAGE_BYTES + _KEY_BYTES * len(question.names), question, worker)

    def _question(self, request: Request) -> _Question:
        return _Question(request, self._site.here, chunk_names(request.prompt, self._page_size))

    def _send(self, action: Action, size: int, *args: Any) -> None:
        """To the coordinator."""
        self._post.send(self.place, action, size, *args)

    def _answer(self, question: _Question, tried: Sequence[int]) -> None:
        request, origin, names = question
        if len(tried) == self._workers:
            self._refusals.forget(request.id)
            self._post.send(origin, self._site.fail, _MESSAGE_BYTES, request)
            return
        now_us, page, prompt_tokens = self._site.now_us, self._page_size, len(request.prompt)
        found = depths(self._holders.masks(names[: (prompt_tokens - 1) // page]), self._workers)
        queue_us = self._queues.remaining_us(now_us)
        worker, match = self._choice.choose(origin, prompt_tokens, names, found, queue_us, list(tried))
        lands_us = now_us + self._way_us[self.place][origin] + self._way_us[origin][self._region[worker]]
        work_us = self._queues.work_us(worker, prompt_tokens, match, page)
        self._queues.give(request.id, worker, work_us, lands_us)
        self._choice.going(request.id, names, worker)
        claimed = match.any_tier * page
        self._post.send(origin, self._site.dispatch, _MESSAGE_BYTES, request, worker, claimed)

    def _hear_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        self._holders.apply(worker, events)
        self._estimates[worker].on_events(events)

    def _hear_begun(self, request_id: int, worker: int) -> None:
        self._queues.begun(request_id, worker, self._site.now_us)
        self._choice.gone(request_id)

    def _hear_ended(self, request_id: int, worker: int) -> None:
        self._hear_begun(request_id, worker)
        self._refusals.forget(request_id)

    def _hear_refused(self, question: _Question, worker: int) -> None:
        self._hear_begun(question.request.id, worker)
        self._answer(question, self._refusals.add(question.request.id, worker))

    def _tell_loads(self) -> None:
        own = self._own[self._site.here]
        loads = [(worker, self._site.load(worker)) for worker in own]
        self._send(self._hear_loads, _LOAD_BYTES * len(own), loads)
        self._site.after(LOAD_PERIOD_US, self._tell_loads)

    def _hear_loads(self, loads: list[tuple[int, Reading[QueueLoad]]]) -> None:
        for worker, reading in loads:
            load, estimate = engine_load(reading.value), self._estimates[worker]
            estimate.on_engine_load(load)
            self._choice.context_tokens[worker] = load.used_tokens
            self._queues.floor_us[worker] = 1000.0 * estimate.queue_ms(load)


CENTRAL_DIRECTORY = Rival(
    CentralDirectory.name,
    CentralDirectory,
    "the paper's 5.1: one coordinator, by the product's joint score",
)
