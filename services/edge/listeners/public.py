"""The public listener: the hot path taken before the framework, everything else after it."""

from starlette.types import ASGIApp

from services.edge.listeners.gateway import Gateway
from services.edge.requests.errors import ApiError, method_not_allowed
from services.edge.requests.exchange import Exchange, Message, Receive, Send
from services.edge.requests.headers import OWN_PREFIX
from services.edge.requests.request_body import Endpoint
from services.edge.settings import Limits
from services.runtime.logs import get_logger

EXCHANGE = "kvcompass.exchange"
"""Key in the ASGI scope under which the control application finds the exchange."""
_HOT = {endpoint.path: endpoint for endpoint in Endpoint}


class PublicListener:
    """An ASGI application. A client's `x-kvcompass-*` headers end here; answers carry the request id."""

    def __init__(self, gateway: Gateway, control: ASGIApp, limits: Limits) -> None:
        self._gateway = gateway
        self._control = control
        self._limits = limits
        self._log = get_logger("public")

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serves one HTTP request."""
        if scope["type"] != "http":
            return
        scope["headers"] = [pair for pair in scope["headers"] if not pair[0].startswith(OWN_PREFIX)]
        exchange = Exchange(scope, receive, send)
        endpoint = _HOT.get(exchange.path)
        if endpoint is None:
            await self._control_request(scope, receive, send, exchange)
        elif exchange.method == "POST":
            await self._gateway.serve(exchange, endpoint)
        else:
            error = method_not_allowed(exchange.method, exchange.path)
            await exchange.refuse(error, [(b"allow", b"POST")])

    async def _control_request(
        self, scope: Message, receive: Receive, send: Send, exchange: Exchange
    ) -> None:
        async def with_request_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", exchange.request_id)]
            await send(message)

        scope[EXCHANGE] = exchange
        try:
            exchange.check_headers(self._limits.header_bytes)
            await self._control(scope, receive, with_request_id)
        except ApiError as error:
            await exchange.refuse(error)
        except Exception:
            self._log.exception("control request failed", request_id=exchange.request_id.decode())
