"""A request of another region's client at the edge of its worker's region: `services.edge.listeners.peer`."""

from typing import TYPE_CHECKING

from kvcompass.fleet.load import RegionLoad
from kvcompass.roles.attempts import Attempt
from simulator.product import sizes
from simulator.product.journey import CUT, REFUSED
from simulator.product.periods import CONNECT_US
from simulator.request import Request

if TYPE_CHECKING:
    from simulator.product.edge_node import EdgeNode


class Carried:
    """One request passing through: a `simulator.router.Passage`."""

    __slots__ = ("_attempt", "_claim", "_course", "_edge", "_origin", "_request")

    def __init__(self, edge: "EdgeNode", request: Request, asked: Attempt, origin: "EdgeNode") -> None:
        """`asked`: the origin's attempt: whom it names, what it claims and how many tries it grants."""
        assert asked.decision is not None
        self._edge = edge
        self._request = request
        self._origin = origin
        self._claim = asked.decision.match_tokens
        self._course = edge.courses.carry(asked.worker, self._claim, len(request.prompt), asked.allowance)
        self._attempt: Attempt | None = None

    def go_on(self) -> None:
        """Try the worker named, then its siblings; refuse when none is left."""
        edge, origin = self._edge, self._origin
        now_us = edge.site.now_us
        attempt = self._course.next(now_us)
        if isinstance(attempt, Attempt):
            self._attempt = attempt
            self._course.start(attempt, now_us)
            edge.site.dispatch(self._request, attempt.worker, self._claim, self)
            return
        self._refuse(edge.role.piggyback(origin.role.region, now_us))

    def _refuse(self, load: RegionLoad) -> None:
        """Tell the origin; as soon as it can be reached."""
        edge, origin = self._edge, self._origin
        journey = origin.journeys[self._request.id]
        size = sizes.PEER_HEADERS + sizes.piggyback(load)
        told = (self._course.used, load)
        if not edge.site.send_reliably(origin.region, journey.refused_by_peer, size, told):
            edge.site.after(CONNECT_US, self._refuse, load)

    def first_token(self, request: Request, worker: int) -> None:
        """The answer begins: its headers take the region's queue vector along."""
        self._first_byte(worker, prefilled=True)

    def finished(self, request: Request, worker: int) -> None:
        """The answer is complete."""
        assert self._attempt is not None
        self._course.served(self._attempt, worker, None, self._edge.site.now_us)

    def erred(self, request: Request, worker: int) -> None:
        """The answer is an error that is the request's own fault: it is passed on, and nobody is blamed."""
        self._first_byte(worker, prefilled=False)
        self.finished(request, worker)

    def refused(self, request: Request, worker: int) -> None:
        """The engine's queue is full."""
        assert self._attempt is not None
        self._course.failed(self._attempt, REFUSED, self._edge.site.now_us)
        self.go_on()

    def lost(self, request: Request, worker: int) -> None:
        """The answer broke off."""
        assert self._attempt is not None
        self._course.failed(self._attempt, CUT, self._edge.site.now_us)

    def _first_byte(self, worker: int, *, prefilled: bool) -> None:
        assert self._attempt is not None
        edge, origin = self._edge, self._origin
        now_us = edge.site.now_us
        self._course.first_byte(self._attempt, worker, prefilled, now_us)
        load = edge.role.piggyback(origin.role.region, now_us)
        edge.site.send_reliably(origin.region, origin.on_region_load, sizes.piggyback(load), (load,))
