"""The listener between regions: carries a peer's request to a worker of this region, never any further."""

import itertools
from dataclasses import dataclass

from kvcompass.plan.model import Plan
from kvcompass.roles.edge import EdgeRole
from kvcompass.routing import NoWorker
from services.edge import errors
from services.edge.callers import require_peer
from services.edge.errors import ApiError
from services.edge.exchange import (
    ClientGoneError,
    DeadlineError,
    Exchange,
    Header,
    Message,
    Presence,
    Receive,
    Send,
)
from services.edge.forward import Forwarder
from services.edge.headers import CLAIM_HEADER, LOAD_HEADER, ORIGIN_HEADER, TOKENS_HEADER, WORKER_HEADER
from services.edge.hops import Hops
from services.edge.metrics import EdgeMetrics, Outcome
from services.edge.piggyback import pack_load
from services.edge.request_body import Endpoint, ModelRequest, parse_request
from services.edge.results import Broke, Refused, Result, Served, cause, last_word
from services.edge.settings import EdgeSettings
from services.edge.upstream import UpstreamAnswer
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


class PeerListener:
    """An ASGI application on its own port. Answers carry the region's queue vector and who served.

    A refusal here means that the named worker and the siblings tried in its place failed: the origin goes to
    another region.
    """

    def __init__(
        self,
        settings: EdgeSettings,
        plan: Plan,
        region: str,
        role: EdgeRole,
        hops: Hops,
        forwarder: Forwarder,
        metrics: EdgeMetrics,
        flights: "itertools.count[int]",
    ) -> None:
        self._key = settings.peer_key
        self._limits = settings.limits
        self._body_s = settings.timeouts.body_s
        self._total_s = settings.timeouts.total_s
        self._plan = plan
        self._region = region
        self._origins = {name for name in plan.regions if name != region}
        self._own = {worker.id: i for i, worker in enumerate(plan.workers) if worker.region == region}
        self._role = role
        self._hops = hops
        self._forwarder = forwarder
        self._metrics = metrics
        self._flights = flights
        self._log = get_logger("peer")
        self.in_progress = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answers one request, whatever happens; counts it once."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope, receive, send)
        origin, outcome = "unknown", Outcome.INTERNAL
        self.in_progress += 1
        try:
            exchange.check_headers(self._limits.header_bytes)
            require_peer(exchange.headers, self._key)
            endpoint = _HOT.get(exchange.path)
            if endpoint is None or exchange.method != "POST":
                raise errors.unknown_url(exchange.method, exchange.path)
            carried = self._carried(exchange)
            origin = carried.origin
            if self.in_progress > self._limits.concurrent_requests:
                raise errors.overloaded()
            outcome = await self._serve(exchange, endpoint, carried)
        except ApiError as error:
            outcome = Outcome.of_error(error.status, error.code)
            await self._refuse(exchange, error, origin)
        except ClientGoneError:
            outcome = Outcome.CANCELLED
        except DeadlineError:
            outcome = Outcome.CUT if exchange.started else Outcome.TIMEOUT
            await self._refuse(exchange, errors.upstream_timeout("The request took too long."), origin)
        except Exception:
            self._log.exception("peer request failed", request_id=exchange.request_id.decode())
            await self._refuse(exchange, errors.internal(), origin)
        finally:
            self.in_progress -= 1
            self._metrics.peer_requests.labels(origin, outcome).inc()

    def _carried(self, exchange: Exchange) -> Carried:
        def text(name: str) -> str:
            return exchange.headers.get(name.encode(), b"").decode("latin-1")

        def number(name: str) -> int:
            value = text(name)
            return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else 0

        origin, worker = text(ORIGIN_HEADER), text(WORKER_HEADER)
        # What came over the WAN once does not go over it again: a worker of a third region is refused.
        if origin not in self._origins:
            raise errors.no_worker(f"{ORIGIN_HEADER} must name another region of the plan, not {origin!r}")
        if worker not in self._own:
            raise errors.no_worker(f"{worker!r} is not a worker of region {self._region!r}")
        return Carried(origin, self._own[worker], number(CLAIM_HEADER), number(TOKENS_HEADER))

    async def _serve(self, exchange: Exchange, endpoint: Endpoint, carried: Carried) -> Outcome:
        body = await exchange.body(self._limits.body_bytes, self._body_s)
        request = parse_request(endpoint, body, self._plan.model.id)
        async with Presence(exchange, self._total_s):
            return await self._carry(exchange, request, carried)

    async def _carry(self, exchange: Exchange, request: ModelRequest, carried: Carried) -> Outcome:
        worker = carried.worker
        new_tokens = max(0, carried.prompt_tokens - carried.claim)
        tried: set[int] = set()
        result: Result | None = None
        while len(tried) < self._limits.attempts:
            if result is not None:
                sibling = self._role.stand_in(
                    carried.prompt_tokens,
                    self._plan.workers[worker].sharing_group,
                    now_us(),
                    frozenset(tried),
                )
                if isinstance(sibling, NoWorker):
                    break
                worker, new_tokens = sibling.worker, carried.prompt_tokens
                self._metrics.peer_moves.inc()
                self._metrics.retries.labels(cause(result)).inc()
            tried.add(worker)
            result = await self._attempt(exchange, request, carried, worker, new_tokens)
            if isinstance(result, Served):
                return Outcome.of_status(result.status)
            if isinstance(result, Broke) and result.begun:
                # Leaving the answer unfinished closes the connection: the origin sees that it was cut.
                return Outcome.CUT
        assert result is not None
        raise last_word(result)

    async def _attempt(
        self, exchange: Exchange, request: ModelRequest, carried: Carried, worker: int, new_tokens: int
    ) -> Result:
        flight = next(self._flights)
        worker_id = self._plan.workers[worker].id
        result: Result | None = None

        def first_byte(_answer: UpstreamAnswer) -> list[Header]:
            self._role.first_byte(flight, now_us())
            return [(WORKER_HEADER.encode(), worker_id.encode()), self._load(carried.origin)]

        rate = float(self._role.fleet.prefill_ms_per_token[worker])
        self._role.carried(flight, worker, rate * new_tokens, now_us())
        try:
            result = await self._forwarder.attempt(
                exchange,
                self._hops.to_worker(worker_id, request.endpoint, exchange),
                request.body,
                stream=request.stream,
                strip_usage=request.strip_usage,
                on_headers=lambda _answer: None,
                first_byte=first_byte,
            )
        finally:
            now = now_us()
            if isinstance(result, Served):
                self._role.finished(flight, None, now)
            else:
                broke = isinstance(result, Broke) and result.blames_upstream
                self._role.failed(flight, now, connect_failed=broke)
                if isinstance(result, Refused):
                    self._role.fleet.suspect(worker, now + round(result.retry_after_s * 1e6))
        return result

    def _load(self, origin: str) -> Header:
        return LOAD_HEADER.encode(), pack_load(self._role.piggyback(origin, now_us()))

    async def _refuse(self, exchange: Exchange, error: ApiError, origin: str) -> None:
        if not exchange.started:
            await exchange.refuse(error, [self._load(origin)] if origin in self._origins else [])
