"""A flight's way back: what its engine says, past whatever stands on the way, to the edge of its request."""

from typing import TYPE_CHECKING, Final

from simulator.clock import Action, Priority
from simulator.flight import Flight
from simulator.router import ErrorAware, LossAware, Passage

if TYPE_CHECKING:
    from simulator.world import World

CONNECT_TIMEOUT_US: Final = 1_000_000
"""After which a region that cannot be reached is taken for refused."""
NOTICE_BYTES: Final = 512
"""HTTP headers of a request, and of an answer; and a refusal."""
TOKEN_BYTES: Final = 4
"""Text a token, in requests and answers."""


class WayBack:
    """Of all flights of a run."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def error(self, flight: Flight) -> None:
        """The engine's answer is an error that no other worker mends: it goes home like any answer."""
        passage, flight.passage = flight.passage, None
        if passage is not None:
            self._world.act(flight.sender, passage.erred, (flight.request, flight.worker))
        if not self._home(flight.sender, flight, self._erred, NOTICE_BYTES):
            self.lose(flight)

    def _erred(self, flight: Flight) -> None:
        request, worker = flight.request, flight.worker
        router = self._world.router
        if isinstance(router, ErrorAware):
            self._world.act(request.region, router.erred, (request, worker))
        elif isinstance(router, LossAware):
            self._world.act(request.region, router.lost, (request, worker))
        self._world.fail(request)

    def tell(self, flight: Flight, first: bool, finished: bool) -> None:
        """An engine has the first token of an answer, or its last, or both."""
        home, passage = self._world.regions[flight.worker], flight.passage
        if first:
            if passage is None:
                reached = self._home(home, flight, self._first_token, NOTICE_BYTES)
            else:
                reached = self._world.network.send_reliably(
                    home, flight.sender, NOTICE_BYTES, self._first_passes, flight, passage
                )
        if finished:
            size = TOKEN_BYTES * len(flight.request.answer)
            if passage is None:
                reached = self._home(home, flight, self._finished, size)
            else:
                reached = self._world.network.send_reliably(
                    home, flight.sender, size, self._end_passes, flight, passage
                )
            if not reached:
                self.lose(flight)

    def _home(self, source: int, flight: Flight, action: Action, size: int) -> bool:
        return self._world.network.send_reliably(source, flight.request.region, size, action, flight)

    def _first_passes(self, flight: Flight, passage: Passage) -> None:
        self._world.act(flight.sender, passage.first_token, (flight.request, flight.worker))
        self._home(flight.sender, flight, self._first_token, NOTICE_BYTES)

    def _end_passes(self, flight: Flight, passage: Passage) -> None:
        flight.passage = None
        self._world.act(flight.sender, passage.finished, (flight.request, flight.worker))
        size = TOKEN_BYTES * len(flight.request.answer)
        if not self._home(flight.sender, flight, self._finished, size):
            self.lose(flight)

    def _first_token(self, flight: Flight) -> None:
        request = flight.request
        self._world.records.first_token_us[request.id] = self._world.clock.now_us
        self._world.act(request.region, self._world.router.first_token, (request, flight.worker))

    def _finished(self, flight: Flight) -> None:
        request, records = flight.request, self._world.records
        row = request.id
        self._world.landed(request)
        if not records.first_token_us[row]:
            # Its message found the regions parted: what it says comes with the rest of the answer.
            self._first_token(flight)
        records.finished_us[row] = self._world.clock.now_us
        records.cached_tokens[row] = flight.cached_tokens
        records.cached_host_tokens[row] = flight.cached_host_tokens
        told = (request, flight.worker, flight.cached_tokens)
        self._world.act(request.region, self._world.router.finished, told)
        self._world.end(request)

    def lose(self, flight: Flight) -> None:
        """Its answer cannot get home: the client sees an error when the connection is given up."""
        self._world.lost_answers += 1
        self._world.clock.at(
            self._world.clock.now_us + CONNECT_TIMEOUT_US, Priority.TIMER, self._lost, flight
        )

    def _lost(self, flight: Flight) -> None:
        request, worker = flight.request, flight.worker
        if flight.passage is not None:
            self._world.act(flight.sender, flight.passage.lost, (request, worker))
        router = self._world.router
        if isinstance(router, LossAware):
            self._world.act(request.region, router.lost, (request, worker))
        self._world.fail(request)
