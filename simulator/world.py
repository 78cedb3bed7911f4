"""A run: engines, links and requests on one clock, and a router that decides."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, EngineRequest, Progress, QueueLoad, Rejection
from kvcompass.wan import Link
from simulator.clock import Action, Clock, Priority
from simulator.decoders import Decoders
from simulator.engine_host import EngineHost
from simulator.errors import SimulationError
from simulator.few_collections import few_collections
from simulator.fleet import Fleet
from simulator.flight import Flight
from simulator.laws import check_laws
from simulator.network import LinkOf, Network
from simulator.reading import Reading
from simulator.records import Records
from simulator.request import Request
from simulator.router import Passage, Rival
from simulator.source import RequestSource
from simulator.way_back import CONNECT_TIMEOUT_US, NOTICE_BYTES, TOKEN_BYTES, WayBack

_TIMER: Final = Priority.TIMER
_ARRIVAL: Final = Priority.ARRIVAL
_CHECK: Final = Priority.CHECK
_STUCK_US: Final = 600_000_000
"""Virtual time without an arrival or an end, after which the requests that are left count as forgotten."""
_TOLD_EVERY: Final = 500
"""Requests between two words on the progress."""


class World:
    """Everything that is no policy. A `Site` to its router. Used for one run."""

    def __init__(
        self,
        fleet: Fleet,
        source: RequestSource,
        rival: Rival,
        *,
        seed: int,
        link_of: LinkOf | None = None,
    ) -> None:
        self.fleet: Final = fleet
        self.seed: Final = seed
        self.clock: Final = Clock()
        self.records: Final = Records()
        self.network: Final = Network(
            self.clock, fleet.regions, link_of or (lambda a, b: Link(fleet.plan.wan_ms[a][b])), seed
        )
        self.regions: Final = [fleet.region_of(worker) for worker in range(fleet.workers)]
        """Of the workers."""
        self.hosts: Final = [self._host(worker) for worker in range(fleet.workers)]
        self.decoders: Final = Decoders(self.clock, fleet, self._answered, self._no_decoder, seed)
        self.lost_answers = 0
        """Requests that an engine served and whose answer did not get home."""
        self._source = source
        self._omniscient = rival.is_bound
        self._here = 0
        self._flights: dict[str, Flight] = {}
        """Requests at an engine or on their way there, by the name that engines know them by."""
        self._way_back: Final = WayBack(self)
        self._last_news_us = 0
        """When a request arrived or ended."""
        self._exhausted = False
        self._following = 0
        """Requests that will arrive because others have ended."""
        self._on_progress: Callable[[int], None] | None = None
        self.router: Final = rival.make(self)

    # --- the run ----------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[int], None] | None = None) -> None:
        """Simulate until every request has ended, and check the laws.

        Args:
            on_progress: Told now and then how many requests have ended.

        Raises:
            SimulationError: A law is broken. A request that the router neither dispatched nor failed is one.
        """
        records = self.records
        self._on_progress = on_progress
        self._pull()
        if not self._exhausted:
            self.clock.at(_STUCK_US, _CHECK, self._watch)
            with few_collections():
                self.clock.run()
        if records.done != records.rows:
            left = records.rows - records.done
            raise SimulationError(
                f"{left} of {records.rows} requests neither ended nor failed", field="router"
            )
        if on_progress is not None:
            on_progress(records.done)
        check_laws(self)

    def drain(self, until_us: int) -> None:
        """Go on for so long although no request is left: messages under way arrive, views come to rest."""
        self.clock.at(until_us, _CHECK, self.clock.stop)
        self.clock.run()

    # --- Site -------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """Virtual time."""
        return self.clock.now_us

    @property
    def here(self) -> int:
        """Region in which the present code runs."""
        return self._here

    def begin(self, region: int, action: Action, *args: Any) -> None:
        """Do something in a region when the run begins."""
        self.clock.at(0, _TIMER, self.act, region, action, args)

    def after(self, delay_us: int, action: Action, *args: Any) -> None:
        """Do something here, later."""
        self.clock.at(self.clock.now_us + delay_us, _TIMER, self.act, self._here, action, args)

    def send(self, region: int, action: Action, size: int = 0, args: tuple[Any, ...] = ()) -> None:
        """Do something in a region when a message has got there, if it does."""
        self.network.send(self._here, region, size, self.act, region, action, args)

    def send_reliably(self, region: int, action: Action, size: int = 0, args: tuple[Any, ...] = ()) -> bool:
        """The same over TCP."""
        return self.network.send_reliably(self._here, region, size, self.act, region, action, args)

    def steady_us(self, source: int, target: int) -> int | None:
        """Time that every message takes from one region to another, if it is the same."""
        return self.network.steady_us(source, target)

    def count(self, source: int, target: int, size: int) -> None:
        """Count messages that are not delivered as such."""
        self.network.count(source, target, size)

    def load(self, worker: int) -> Reading[QueueLoad]:
        """What the engine of a worker of this region tells of its load now."""
        assert self.regions[worker] == self._here, "an engine is asked from within its region"
        return Reading(self.hosts[worker].queue_load(), self._may_read, self._here, self.clock.now_us)

    def dispatch(
        self, request: Request, worker: int, claimed_tokens: int = 0, passage: Passage | None = None
    ) -> None:
        """Send a request from here to a worker."""
        row, here, records = request.id, self._here, self.records
        name = str(row)
        assert name not in self._flights, "a request is at one worker at a time"
        self._flights[name] = flight = Flight(request, worker, here, passage)
        records.worker[row] = worker
        records.claimed_tokens[row] = claimed_tokens
        records.attempts[row] += 1
        size = NOTICE_BYTES + TOKEN_BYTES * len(request.prompt)
        reached = self.network.send_reliably(here, self.regions[worker], size, self._submit, name, flight)
        if not reached:
            self.clock.at(self.clock.now_us + CONNECT_TIMEOUT_US, _TIMER, self._refuse, name, flight)

    def fail(self, request: Request) -> None:
        """Give a request up."""
        self._flights.pop(str(request.id), None)
        self.records.worker[request.id] = -1
        self.records.failed += 1
        self.end(request)

    def landed(self, request: Request) -> None:
        """A request is at no worker any more."""
        del self._flights[str(request.id)]

    def engine_now(self, worker: int) -> Engine:
        """Any worker's engine as it is this instant."""
        assert self._omniscient, "only a bound sees everything"
        self.hosts[worker].queue_load()
        return self.hosts[worker].engine

    # --- where and when ---------------------------------------------------------------------------

    def act(self, region: int, action: Action, args: tuple[Any, ...]) -> None:
        """Do something in a region now."""
        before, self._here = self._here, region
        action(*args)
        self._here = before

    def _may_read(self, region: int, at_us: int) -> bool:
        return self.clock.now_us - at_us >= self.network.least_us(region, self._here)

    # --- arrivals and ends ------------------------------------------------------------------------

    def _pull(self) -> None:
        request = self._source.next()
        if request is None:
            self._exhausted = True
        else:
            self.clock.at(request.arrives_us, _ARRIVAL, self._arrive, request, True)

    def _arrive(self, request: Request, pull: bool) -> None:
        now_us = self.clock.now_us
        records, row = self.records, request.id
        records.arrived(row)
        records.region[row] = request.region
        records.arrived_us[row] = now_us
        records.prompt_tokens[row] = len(request.prompt)
        records.answer_tokens[row] = len(request.answer)
        self._last_news_us = now_us
        if pull:
            self._pull()
        else:
            self._following -= 1
        self._here = request.region
        self.router.arrive(request)

    def _watch(self) -> None:
        """Notice when nothing ends any more although requests are left."""
        now_us, records = self.clock.now_us, self.records
        since_us = self._last_news_us if records.done < records.rows else now_us
        if now_us >= since_us + _STUCK_US:
            self.clock.stop()
        else:
            self.clock.at(since_us + _STUCK_US, _CHECK, self._watch)

    def end(self, request: Request) -> None:
        """A request has ended, well or badly."""
        records = self.records
        records.done += 1
        self._last_news_us = self.clock.now_us
        if records.done % _TOLD_EVERY == 0 and self._on_progress is not None:
            self._on_progress(records.done)
        following = self._source.ended(request, self.clock.now_us)
        if following is not None:
            self._following += 1
            self.clock.at(following.arrives_us, _ARRIVAL, self._arrive, following, False)
        elif records.done == records.rows and self._exhausted and not self._following:
            self.clock.stop()

    # --- inside: at the engine --------------------------------------------------------------------

    def _host(self, worker: int) -> EngineHost:
        region = self.regions[worker]

        def published(events: Sequence[EngineEvent]) -> None:
            before, self._here = self._here, region
            self.router.cache_events(worker, events)
            self._here = before

        return EngineHost(self.clock, self.fleet.engines[worker], self._heard, published)

    def _submit(self, name: str, flight: Flight) -> None:
        request, worker = flight.request, flight.worker
        self.records.submitted_us[request.id] = self.clock.now_us
        answer = request.answer[:0] if self.decoders else request.answer
        asked = EngineRequest(name, request.prompt, answer, request.category)
        rejection = self.hosts[worker].submit(asked)
        if rejection is None:
            return
        source = self.regions[worker]
        if rejection is Rejection.TOO_LARGE:
            reached = self.network.send_reliably(
                source, flight.sender, NOTICE_BYTES, self._way_back.error, flight
            )
        else:
            reached = self.network.send_reliably(
                source, flight.sender, NOTICE_BYTES, self._refuse, name, flight
            )
        if not reached:
            self._way_back.lose(flight)

    def _refuse(self, name: str, flight: Flight) -> None:
        del self._flights[name]
        passage = flight.passage
        refused = self.router.refused if passage is None else passage.refused
        self.act(flight.sender, refused, (flight.request, flight.worker))

    def _heard(self, steps: Sequence[Progress]) -> None:
        for progress in steps:
            flight = self._flights[progress.request_id]
            flight.cached_tokens = progress.cached_tokens
            flight.cached_host_tokens = progress.cached_host_tokens
            if progress.generated:
                self._way_back.tell(flight, progress.generated == 1, progress.finished)
            else:
                self.decoders.hand_over(self.regions[flight.worker], flight.request)

    def _answered(self, progress: Progress) -> None:
        """PD: a decoder goes on with an answer."""
        self._way_back.tell(self._flights[progress.request_id], progress.generated == 1, progress.finished)

    def _no_decoder(self, request: Request) -> None:
        """PD: no decoder of the region takes the answer."""
        self._way_back.lose(self._flights[str(request.id)])
