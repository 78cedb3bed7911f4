"""A client's request through the attempts of its course, as `services.edge` takes it."""

from typing import TYPE_CHECKING, Final

from kvcompass.fleet.load import RegionLoad
from kvcompass.roles.attempts import Attempt, Failure, Fault
from kvcompass.roles.courses import OwnCourse
from simulator.product import sizes
from simulator.product.periods import CONNECT_US, RETRY_AFTER_US
from simulator.request import Request

if TYPE_CHECKING:
    from simulator.product.edge_node import EdgeNode

REFUSED: Final = Failure(Fault.REFUSED, retry_after_us=RETRY_AFTER_US)
"""An engine with a full queue answers 503 and does not say when to come again."""
_UNREACHABLE: Final = Failure(Fault.UNREACHABLE)
CUT: Final = Failure(Fault.CUT, begun=True)


class Journey:
    """One request at the edge of its client."""

    __slots__ = ("_attempt", "_course", "_edge", "_request")

    def __init__(self, edge: "EdgeNode", request: Request, course: OwnCourse) -> None:
        self._edge = edge
        self._request = request
        self._course = course
        self._attempt: Attempt | None = None

    def go_on(self) -> None:
        """Make the next attempt, or give up. The edge's view has what has arrived."""
        edge, request = self._edge, self._request
        now_us = edge.site.now_us
        attempt = self._course.next(now_us)
        if not isinstance(attempt, Attempt):
            del edge.journeys[request.id]
            edge.site.fail(request)
            return
        self._attempt = attempt
        self._course.start(attempt, now_us)
        if not attempt.peer:
            assert attempt.decision is not None
            edge.site.dispatch(request, attempt.worker, attempt.decision.match_tokens)
            return
        peer = edge.peers[attempt.peer]
        size = sizes.PEER_HEADERS + sizes.TOKEN * len(request.prompt)
        if not edge.site.send_reliably(peer.region, peer.carry, size, (request, attempt, edge)):
            edge.site.after(CONNECT_US, self.failed, _UNREACHABLE)

    def first_token(self, worker: int) -> None:
        """The answer begins."""
        assert self._attempt is not None
        self._course.first_byte(self._attempt, worker, True, self._edge.site.now_us)

    def served(self, worker: int, cached_tokens: int) -> None:
        """The answer is complete."""
        assert self._attempt is not None
        del self._edge.journeys[self._request.id]
        self._course.served(self._attempt, worker, cached_tokens, self._edge.site.now_us)

    def failed(self, failure: Failure) -> None:
        """The attempt has failed before any answer: make another."""
        assert self._attempt is not None
        now_us = self._edge.site.now_us
        self._course.failed(self._attempt, failure, now_us)
        self._edge.catch_up(now_us)
        self.go_on()

    def refused_by_peer(self, used: int, load: RegionLoad) -> None:
        """A peer edge has tried in vain; it tells how its region stands."""
        self._edge.on_region_load(load)
        self.failed(Failure(Fault.REFUSED, retry_after_us=RETRY_AFTER_US, used=used))

    def erred(self, worker: int) -> None:
        """The answer is an error that is the request's own fault: it is passed on, and nobody is blamed."""
        assert self._attempt is not None
        now_us = self._edge.site.now_us
        del self._edge.journeys[self._request.id]
        self._course.first_byte(self._attempt, worker, False, now_us)
        self._course.served(self._attempt, worker, None, now_us)

    def lost(self) -> None:
        """The answer broke off."""
        assert self._attempt is not None
        del self._edge.journeys[self._request.id]
        self._course.failed(self._attempt, CUT, self._edge.site.now_us)
