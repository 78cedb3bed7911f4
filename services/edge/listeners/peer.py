"""The listener between regions: carries a peer's request to a worker of this region, never any further."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.plan.model import Plan
from kvcompass.roles.attempts import Attempt
from kvcompass.roles.courses import CarriedCourse, Courses
from kvcompass.routing import NoWorker
from services.edge.fleet.piggyback import pack_load
from services.edge.forwarding.attempt_loop import AttemptLoop, Cargo
from services.edge.forwarding.results import Broke, Served, last_word
from services.edge.forwarding.upstream import UpstreamAnswer
from services.edge.metrics import EdgeMetrics, Outcome
from services.edge.requests import errors
from services.edge.requests.callers import require_peer
from services.edge.requests.errors import ApiError
from services.edge.requests.exchange import (
    ClientGoneError,
    DeadlineError,
    Exchange,
    Header,
    Message,
    Presence,
    Receive,
    Send,
)
from services.edge.requests.headers import (
    ATTEMPTS_HEADER,
    CLAIM_HEADER,
    LOAD_HEADER,
    ORIGIN_HEADER,
    STREAM_HEADER,
    TOKENS_HEADER,
    WORKER_HEADER,
)
from services.edge.requests.request_body import Endpoint
from services.edge.settings import EdgeSettings
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger

_HOT = {endpoint.path: endpoint for endpoint in Endpoint}


@dataclass(frozen=True, slots=True)
class Carried:
    """What a peer says of the request it sends."""

    origin: str
    worker: int
    claim: int
    prompt_tokens: int
    stream: bool
    attempts: int
    """What the origin grants."""


class PeerListener:
    """An ASGI application on its own port. Answers carry the region's queue vector and who served.

    A refusal here means that the named worker and the siblings tried in its place failed: the origin goes to
    another region.
    """

    def __init__(
        self, settings: EdgeSettings, plan: Plan, courses: Courses, loop: AttemptLoop, metrics: EdgeMetrics
    ) -> None:
        region = courses.role.region
        self._key = settings.peer_key
        self._limits = settings.limits
        self._body_s = settings.timeouts.body_s
        self._total_s = settings.timeouts.total_s
        self._region = region
        self._courses = courses
        self.apply_plan(plan)
        self._loop = loop
        self._metrics = metrics
        self._log = get_logger("peer")
        self.in_progress = 0

    def apply_plan(self, plan: Plan) -> None:
        """Carries requests of this plan's regions, for its workers here. The courses go by it already."""
        self._origins = {name for name in plan.regions if name != self._region}
        self._own = {plan.workers[i].id: i for i in self._courses.workers_of[self._region]}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request, whatever happens; counts it once."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        origin, outcome = "unknown", Outcome.INTERNAL
        passage: _Passage | None = None
        self.in_progress += 1
        try:
            exchange.check_headers(self._limits.header_bytes)
            require_peer(exchange.headers, self._key)
            endpoint = _HOT.get(exchange.path)
            if endpoint is None or exchange.method != "POST":
                raise errors.unknown_url(exchange.method, exchange.path)
            carried = self._carried(exchange)
            origin = carried.origin
            passage = _Passage(self._courses, self._metrics, carried)
            if self.in_progress > self._limits.concurrent_requests:
                raise errors.overloaded()
            outcome = await self._serve(exchange, endpoint, carried, passage)
        except ApiError as error:
            outcome = Outcome.of_error(error.status, error.code)
            await self._refuse(exchange, error, passage)
        except ClientGoneError:
            outcome = Outcome.CANCELLED
        except DeadlineError:
            outcome = Outcome.CUT if exchange.started else Outcome.TIMEOUT
            await self._refuse(exchange, errors.upstream_timeout("The request took too long."), passage)
        except Exception:
            self._log.exception("peer request failed", request_id=exchange.request_id.decode())
            await self._refuse(exchange, errors.internal(), passage)
        finally:
            self.in_progress -= 1
            self._metrics.peer_requests.labels(origin, outcome).inc()

    def _carried(self, exchange: Exchange) -> Carried:
        def text(name: str) -> str:
            return exchange.headers.get(name.encode(), b"").decode("latin-1")

        def number(name: str, default: int = 0) -> int:
            value = text(name)
            return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else default

        origin, worker = text(ORIGIN_HEADER), text(WORKER_HEADER)
        # What came over the WAN once does not go over it again: a worker of a third region is refused.
        if origin not in self._origins:
            raise errors.no_worker(f"{ORIGIN_HEADER} must name another region of the plan, not {origin!r}")
        if worker not in self._own:
            raise errors.no_worker(f"{worker!r} is not a worker of region {self._region!r}")
        return Carried(
            origin,
            self._own[worker],
            number(CLAIM_HEADER),
            number(TOKENS_HEADER),
            text(STREAM_HEADER) == "1",
            number(ATTEMPTS_HEADER, 1),
        )

    async def _serve(
        self, exchange: Exchange, endpoint: Endpoint, carried: Carried, passage: "_Passage"
    ) -> Outcome:
        # The origin has read the body and asked for usage where the client did not: it passes as it came.
        body = await exchange.body(self._limits.body_bytes, self._body_s)
        async with Presence(exchange, self._total_s):
            result = await self._loop.run(Cargo(exchange, endpoint, body, carried.stream), passage)
        if isinstance(result, Served):
            return Outcome.of_status(result.status)
        if isinstance(result, Broke) and result.begun:
            # Leaving the answer unfinished closes the connection: the origin sees that it was cut.
            return Outcome.CUT
        raise last_word(result)

    async def _refuse(self, exchange: Exchange, error: ApiError, passage: "_Passage | None") -> None:
        if not exchange.started:
            await exchange.refuse(error, [] if passage is None else passage.refusal_headers(error))


class _Passage:
    """One request passing through; `services.edge.forwarding.attempt_loop.Trip`."""

    def __init__(self, courses: Courses, metrics: EdgeMetrics, carried: Carried) -> None:
        self.course: CarriedCourse = courses.carry(
            carried.worker, carried.claim, carried.prompt_tokens, carried.attempts
        )
        self._role = courses.role
        self._metrics = metrics
        self._carried = carried

    def next(self) -> Attempt | NoWorker | None:
        attempt = self.course.next(now_us())
        if isinstance(attempt, Attempt) and attempt.worker != self._carried.worker:
            self._metrics.peer_moves.inc()
        return attempt

    def facts(self, _attempt: Attempt) -> Mapping[str, str]:
        return {}

    def on_headers(self, attempt: Attempt, answer: UpstreamAnswer) -> None:
        pass

    def on_first_byte(self, attempt: Attempt, _answer: UpstreamAnswer) -> list[Header]:
        return [(WORKER_HEADER.encode(), attempt.worker_id.encode()), self._load()]

    def on_served(self, attempt: Attempt, _result: Served) -> None:
        self.course.served(attempt, attempt.worker, None, now_us())

    def answering(self, attempt: Attempt) -> int:
        return attempt.worker

    def refusal_headers(self, error: ApiError) -> list[Header]:
        """What a refusal tells the origin. One that is final names the worker: it is for the client."""
        headers = [self._load(), (ATTEMPTS_HEADER.encode(), b"%d" % self.course.used)]
        if error.final:
            headers.append((WORKER_HEADER.encode(), self.course.named_id.encode()))
        return headers

    def _load(self) -> Header:
        return LOAD_HEADER.encode(), pack_load(self._role.piggyback(self._carried.origin, now_us()))
