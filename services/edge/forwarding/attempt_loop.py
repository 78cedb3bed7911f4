"""A request through the attempts of its course: never a second byte from a second worker."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvcompass.roles.attempts import Attempt
from kvcompass.roles.courses import Course
from kvcompass.routing import NoWorker
from services.edge.forwarding.forward import Forwarder
from services.edge.forwarding.hops import Hops
from services.edge.forwarding.results import Broke, Refused, Result, Served, cause, failure
from services.edge.forwarding.upstream import UpstreamAnswer
from services.edge.metrics import EdgeMetrics
from services.edge.requests import errors
from services.edge.requests.exchange import Exchange, Header
from services.edge.requests.request_body import Endpoint
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger
from services.runtime.sparse_log import SparseLog


@dataclass(frozen=True, slots=True)
class Cargo:
    """What is sent, the same at every attempt."""

    exchange: Exchange
    endpoint: Endpoint
    body: bytes
    stream: bool
    strip_usage: bool = False
    """Take the usage chunk out of a stream."""


class Trip(Protocol):
    """One request on its way: its course, and what its listener adds to an attempt."""

    @property
    def course(self) -> Course:
        """Decides."""

    def next(self) -> Attempt | NoWorker | None:
        """Asks the course for the next attempt."""

    def facts(self, attempt: Attempt) -> Mapping[str, str]:
        """Headers for a peer edge."""

    def on_headers(self, attempt: Attempt, answer: UpstreamAnswer) -> None:
        """The upstream's status and headers are there."""

    def on_first_byte(self, attempt: Attempt, answer: UpstreamAnswer) -> list[Header]:
        """The answer starts; returns headers to add to it."""

    def on_served(self, attempt: Attempt, result: Served) -> None:
        """The answer is complete: tells the course."""

    def answering(self, attempt: Attempt) -> int:
        """The worker that answers, as far as is known."""


class AttemptLoop:
    """Asks, sends, settles, and asks again."""

    def __init__(self, hops: Hops, forwarder: Forwarder, metrics: EdgeMetrics) -> None:
        self._hops = hops
        self._forwarder = forwarder
        self._metrics = metrics
        self._log = SparseLog(get_logger("attempts"))

    async def run(self, cargo: Cargo, trip: Trip) -> Result:
        """The last attempt's result. Errors: ApiError when not one could be made."""
        result: Refused | Broke | None = None
        while isinstance(step := trip.next(), Attempt):
            if result is not None:
                self._metrics.retries.labels(cause(result)).inc()
            latest = await self._attempt(cargo, trip, step)
            if isinstance(latest, Served):
                return latest
            result = latest
            if isinstance(latest, Refused) and latest.denied_by is not None:
                self._log.warning(
                    "key not taken: give both sides one, and start this edge anew",
                    setting=latest.denied_by.value,
                    status=latest.status,
                    by=step.peer or step.worker_id,
                )
        if result is None:
            raise errors.no_worker(step.message if step is not None else "No attempt is allowed.")
        return result

    async def _attempt(self, cargo: Cargo, trip: Trip, attempt: Attempt) -> Result:
        course = trip.course
        result: Result | None = None

        def first_byte(answer: UpstreamAnswer) -> list[Header]:
            course.first_byte(attempt, trip.answering(attempt), answer.status == 200, now_us())
            return trip.on_first_byte(attempt, answer)

        course.start(attempt, now_us())
        try:
            result = await self._forwarder.attempt(
                cargo.exchange,
                self._hops.of(attempt, cargo.endpoint, cargo.exchange, trip.facts(attempt)),
                cargo.body,
                stream=cargo.stream,
                strip_usage=cargo.strip_usage,
                on_headers=lambda answer: trip.on_headers(attempt, answer),
                first_byte=first_byte,
            )
        finally:
            if isinstance(result, Served):
                trip.on_served(attempt, result)
            else:
                course.failed(attempt, failure(result, trip.answering(attempt)), now_us())
        return result
