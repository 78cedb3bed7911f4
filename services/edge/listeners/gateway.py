"""The public hot path: one plain ASGI callable, from the request's bytes to exactly one outcome."""

from services.edge.forwarding.attempt_loop import Cargo
from services.edge.listeners.dispatch import Dispatcher
from services.edge.metrics import EdgeMetrics, Outcome
from services.edge.readiness import Readiness
from services.edge.requests import errors
from services.edge.requests.callers import Callers
from services.edge.requests.errors import ApiError
from services.edge.requests.exchange import ClientGoneError, DeadlineError, Exchange, Presence
from services.edge.requests.prompts import PromptReader
from services.edge.requests.request_body import Endpoint, parse_request
from services.edge.settings import EdgeSettings
from services.runtime.epoch import now_us
from services.runtime.logs import get_logger


class Gateway:
    """Serves chat and completions. Holds the count of requests in progress and nothing of any request."""

    def __init__(
        self,
        settings: EdgeSettings,
        served_model: str,
        callers: Callers,
        readiness: Readiness,
        reader: PromptReader,
        dispatcher: Dispatcher,
        metrics: EdgeMetrics,
    ) -> None:
        self._limits = settings.limits
        self._body_s = settings.timeouts.body_s
        self._total_s = settings.timeouts.total_s
        self._model = served_model
        self._callers = callers
        self._readiness = readiness
        self._reader = reader
        self._dispatcher = dispatcher
        self._metrics = metrics
        self._log = get_logger("gateway")
        self.in_progress = 0

    async def serve(self, exchange: Exchange, endpoint: Endpoint) -> None:
        """Answers one request, whatever happens; counts it once."""
        arrived_us = now_us()
        outcome = Outcome.INTERNAL
        self.in_progress += 1
        try:
            outcome = await self._serve(exchange, endpoint, arrived_us)
        except ApiError as error:
            outcome = Outcome.of_error(error.status, error.code)
            await self._refuse(exchange, error)
        except ClientGoneError:
            outcome = Outcome.CANCELLED
        except DeadlineError:
            outcome = Outcome.CUT if exchange.started else Outcome.TIMEOUT
            await self._refuse(exchange, errors.upstream_timeout("The request took too long."))
        except Exception:
            self._log.exception("request failed", request_id=exchange.request_id.decode())
            await self._refuse(exchange, errors.internal())
        finally:
            self.in_progress -= 1
            self._metrics.requests.labels(endpoint, outcome).inc()
            self._log.debug(
                "request",
                request_id=exchange.request_id.decode(),
                route=endpoint,
                outcome=outcome,
                ms=round((now_us() - arrived_us) / 1_000, 1),
            )

    async def _serve(self, exchange: Exchange, endpoint: Endpoint, arrived_us: int) -> Outcome:
        exchange.check_headers(self._limits.header_bytes)
        caller = self._callers.identify(exchange.headers)
        exchange.check_json()
        if self.in_progress > self._limits.concurrent_requests:
            raise errors.overloaded()
        if not self._readiness.can_route:
            raise errors.starting(self._readiness.reasons())
        body = await exchange.body(self._limits.body_bytes, self._body_s)
        request = parse_request(endpoint, body, self._model)
        async with Presence(exchange, self._total_s):
            began_us = now_us()
            prompt = await self._reader.read(request, caller.group)
            self._metrics.encode.observe((now_us() - began_us) / 1e6)
            if prompt.unkeyed is not None:
                self._metrics.unkeyed.labels(prompt.unkeyed).inc()
            return await self._dispatcher.dispatch(
                Cargo(exchange, endpoint, request.body, request.stream, request.strip_usage),
                prompt,
                caller.group,
                arrived_us=arrived_us,
                choices=request.choices,
                blind=self._readiness.blind,
                admin=caller.admin,
                answer_tokens=request.answer_tokens,
            )

    async def _refuse(self, exchange: Exchange, error: ApiError) -> None:
        if not exchange.started:
            await exchange.refuse(error)
        elif not exchange.ended:
            await exchange.cut(error)
