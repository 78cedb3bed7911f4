"""A run: engines, links and requests on one clock, and a router that decides."""

from collections.abc import Callable, Sequence
from typing import Final

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model import Engine, EngineRequest, ModelLoad, Progress
from kvcompass.wan import Link
from simulator.clock import Action, Clock, Priority
from simulator.engine_host import EngineHost
from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.network import LinkOf, Network
from simulator.reading import Reading
from simulator.records import Records
from simulator.request import Request
from simulator.router import Rival
from simulator.source import RequestSource

_CONNECT_TIMEOUT_US: Final = 1_000_000
"""After which a region that cannot be reached is taken for refused."""
_STUCK_US: Final = 4 * 3_600_000_000
"""Virtual time after the last arrival by which every request must have ended."""


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
        self.hosts: Final = [self._host(worker) for worker in range(fleet.workers)]
        self._regions = [fleet.region_of(worker) for worker in range(fleet.workers)]
        self._source = source
        self._omniscient = rival.is_bound
        self._here = 0
        self._flights: dict[int, tuple[Request, int]] = {}
        """Requests at an engine or on their way there, and that engine's worker, by id."""
        self._last_arrival_us = 0
        self.router: Final = rival.make(self)

    # --- the run ----------------------------------------------------------------------------------

    def run(self, on_progress: Callable[[int], None] | None = None) -> None:
        """Simulate until every request has ended.

        Args:
            on_progress: Told now and then how many requests have ended.

        Raises:
            SimulationError: The router lost a request: it neither dispatched nor failed it.
        """
        self._pull()
        told = 0
        while self.clock.step():
            if self.records.done == self.records.rows and self._exhausted:
                break
            if on_progress is not None and self.records.done - told >= 500:
                told = self.records.done
                on_progress(told)
            if self.clock.now_us > self._last_arrival_us + _STUCK_US:
                break
        if self.records.done != self.records.rows:
            left = self.records.rows - self.records.done
            raise SimulationError(
                f"{left} of {self.records.rows} requests neither ended nor failed", field="router"
            )
        if on_progress is not None:
            on_progress(self.records.done)

    # --- Site -------------------------------------------------------------------------------------

    @property
    def now_us(self) -> int:
        """Virtual time."""
        return self.clock.now_us

    @property
    def here(self) -> int:
        """Region in which the present code runs."""
        return self._here

    def after(self, delay_us: int, action: Action) -> None:
        """Do something here, later."""
        here = self._here
        self.clock.at(self.clock.now_us + delay_us, Priority.TIMER, lambda: self._at(here, action))

    def send(self, region: int, action: Action, size: int = 0) -> None:
        """Do something in a region when a message has got there, if it does."""
        self.network.send(self._here, region, lambda: self._at(region, action), size)

    def send_reliably(self, region: int, action: Action, size: int = 0) -> None:
        """The same over TCP."""
        self.network.send_reliably(self._here, region, lambda: self._at(region, action), size)

    def load(self, worker: int) -> Reading[ModelLoad]:
        """What the engine of a worker of this region tells of its load now."""
        assert self._regions[worker] == self._here, "an engine is asked from within its region"
        return Reading(self.hosts[worker].load(), self._may_read, self._here, self.clock.now_us)

    def dispatch(self, request: Request, worker: int, claimed_tokens: int = 0) -> None:
        """Send a request from here to a worker."""
        assert request.id not in self._flights, "a request is at one worker at a time"
        self._flights[request.id] = request, worker
        sender = self._here
        self.records.write(request.id, worker=worker, claimed_tokens=claimed_tokens)
        size = 4 * len(request.prompt)
        target = self._regions[worker]
        reached = self.network.send_reliably(
            sender, target, lambda: self._submit(request, worker, sender), size
        )
        if not reached:
            self.clock.at(
                self.clock.now_us + _CONNECT_TIMEOUT_US,
                Priority.TIMER,
                lambda: self._refuse(request, worker, sender),
            )

    def fail(self, request: Request) -> None:
        """Give a request up."""
        self._flights.pop(request.id, None)
        self.records.write(request.id, worker=-1)
        self.records.failed += 1
        self._end(request)

    def engine_now(self, worker: int) -> Engine:
        """Any worker's engine as it is this instant."""
        assert self._omniscient, "only a bound sees everything"
        self.hosts[worker].load()
        return self.hosts[worker].engine

    # --- inside -----------------------------------------------------------------------------------

    def _host(self, worker: int) -> EngineHost:
        def heard(progress: Sequence[Progress]) -> None:
            for step in progress:
                self._progressed(worker, step)

        def published(events: Sequence[EngineEvent]) -> None:
            self._at(self._regions[worker], lambda: self.router.cache_events(worker, events))

        return EngineHost(self.clock, self.fleet.engines[worker], heard, published)

    def _at(self, region: int, action: Action) -> None:
        before, self._here = self._here, region
        action()
        self._here = before

    def _may_read(self, region: int, at_us: int) -> bool:
        return self.clock.now_us - at_us >= self.network.least_us(region, self._here)

    def _pull(self) -> None:
        request = self._source.next()
        self._exhausted = request is None
        if request is not None:
            self._expect(request, then=self._pull)

    def _expect(self, request: Request, then: Action | None = None) -> None:
        def arrive() -> None:
            self.records.arrived(
                request.id,
                region=request.region,
                tenant=request.tenant,
                arrived_us=self.clock.now_us,
                prompt_tokens=len(request.prompt),
                answer_tokens=len(request.answer),
            )
            self._last_arrival_us = self.clock.now_us
            if then is not None:
                then()
            self._at(request.region, lambda: self.router.arrive(request))

        self.clock.at(request.arrives_us, Priority.ARRIVAL, arrive)

    def _submit(self, request: Request, worker: int, sender: int) -> None:
        self.records.write(request.id, submitted_us=self.clock.now_us)
        rejection = self.hosts[worker].submit(
            EngineRequest(str(request.id), request.prompt, request.answer, request.category)
        )
        if rejection is not None:
            reached = self.network.send_reliably(
                self._regions[worker], sender, lambda: self._refuse(request, worker, sender)
            )
            if not reached:
                self._lose(request)

    def _refuse(self, request: Request, worker: int, sender: int) -> None:
        del self._flights[request.id]
        self._at(sender, lambda: self.router.refused(request, worker))

    def _progressed(self, worker: int, progress: Progress) -> None:
        request, _ = self._flights[int(progress.request_id)]
        home = self._regions[worker]
        if progress.generated == 1:
            self.network.send_reliably(home, request.region, lambda: self._first_token(request, worker))
        if progress.finished:
            reached = self.network.send_reliably(
                home, request.region, lambda: self._finished(request, worker, progress)
            )
            if not reached:
                self._lose(request)

    def _first_token(self, request: Request, worker: int) -> None:
        self.records.write(request.id, first_token_us=self.clock.now_us)
        self._at(request.region, lambda: self.router.first_token(request, worker))

    def _finished(self, request: Request, worker: int, progress: Progress) -> None:
        del self._flights[request.id]
        self.records.write(
            request.id,
            finished_us=self.clock.now_us,
            cached_tokens=progress.cached_tokens,
            cached_host_tokens=progress.cached_host_tokens,
        )
        self._at(request.region, lambda: self.router.finished(request, worker, progress.cached_tokens))
        self._end(request)

    def _lose(self, request: Request) -> None:
        """Its answer cannot get home: the client sees an error."""
        self.clock.at(self.clock.now_us + _CONNECT_TIMEOUT_US, Priority.TIMER, lambda: self.fail(request))

    def _end(self, request: Request) -> None:
        self.records.done += 1
        following = self._source.ended(request, self.clock.now_us)
        if following is not None:
            self._expect(following)
