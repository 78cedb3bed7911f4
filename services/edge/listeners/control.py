"""What the public listener serves beside the hot path: models, health, the decision explained, state."""

from collections.abc import Callable
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from services.edge.listeners.explain import Explainer
from services.edge.listeners.public import EXCHANGE
from services.edge.readiness import Readiness
from services.edge.requests import errors
from services.edge.requests.callers import Callers
from services.edge.requests.errors import ApiError
from services.edge.requests.exchange import ClientGoneError, Exchange

_CREATED = 1_767_225_600
"""`created` of the served model: clients want a number, the plan has none. 2026-01-01."""


def control_app(
    model: str,
    callers: Callers,
    readiness: Readiness,
    explainer: Explainer,
    state: Callable[[], dict[str, Any]],
) -> FastAPI:
    """The application behind the hot path. `state` gives `/v1/kvcompass/state`."""
    app = FastAPI(
        title="KVCompass edge", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    served = {"id": model, "object": "model", "created": _CREATED, "owned_by": "kvcompass"}

    @app.get("/v1/models")
    async def models(request: Request) -> Response:
        callers.identify(_exchange(request).headers)
        return _json({"object": "list", "data": [served]})

    @app.get("/v1/models/{name:path}")
    async def one_model(request: Request, name: str) -> Response:
        callers.identify(_exchange(request).headers)
        if name != model:
            raise errors.model_not_found(name, model)
        return _json(served)

    @app.get("/health")
    async def health() -> Response:
        return _json(readiness.public())

    @app.get("/ready")
    async def ready() -> Response:
        return _json(readiness.public(), 200 if readiness.ready else 503)

    @app.post("/v1/kvcompass/route")
    async def route(request: Request) -> Response:
        exchange = _exchange(request)
        caller = callers.require_admin(exchange.headers)
        return _json(await explainer.explain(exchange, caller))

    @app.get("/v1/kvcompass/state")
    async def current_state(request: Request) -> Response:
        callers.require_admin(_exchange(request).headers)
        return _json(state())

    @app.exception_handler(ApiError)
    async def refused(_request: Request, error: ApiError) -> Response:
        return _error_response(error)

    @app.exception_handler(Exception)
    async def failed(_request: Request, _error: Exception) -> Response:
        # Raised on after this answer: the listener logs it.
        return _error_response(errors.internal())

    @app.exception_handler(ClientGoneError)
    async def gone(_request: Request, _error: ClientGoneError) -> Response:
        return Response(status_code=499)

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        make = errors.method_not_allowed if error.status_code == 405 else errors.unknown_url
        response = _error_response(make(request.method, request.url.path))
        response.headers.update(error.headers or {})
        return response

    return app


def _exchange(request: Request) -> Exchange:
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange


def _json(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value), status, media_type="application/json")


def _error_response(error: ApiError) -> Response:
    headers = {name.decode(): value.decode() for name, value in error.headers()}
    return Response(error.body(), error.status, headers)
