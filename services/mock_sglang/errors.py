"""Errors as SGLang 0.5.10 answers them."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class EngineError(Exception):
    """A refused request: HTTP status, JSON body, extra headers."""

    status: int
    body: dict[str, Any]
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)


def bad_request(message: str, param: str | None = None) -> EngineError:
    """400 in the flat shape of SGLang's OpenAI routes."""
    return EngineError(400, flat_error(400, message, "BadRequestError", param))


def flat_error(status: int, message: str, kind: str, param: str | None = None) -> dict[str, Any]:
    """SGLang's own error object, which is not nested under `error`."""
    return {"object": "error", "message": message, "type": kind, "param": param, "code": status}


def unknown_model(model: str) -> EngineError:
    """404, nested, as SGLang's /v1/models/{model} answers it."""
    error = {
        "message": f"The model '{model}' does not exist",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }
    return EngineError(404, {"error": error})


def aborted() -> EngineError:
    """400 for a request that was ended by its client or an operator."""
    return EngineError(400, flat_error(400, "Generation aborted.", "BadRequest"))


def failed(message: str) -> EngineError:
    """500 for what is the engine's own fault."""
    return EngineError(500, flat_error(500, message, "InternalServerError"))


def busy(message: str) -> EngineError:
    """503 with Retry-After."""
    body = flat_error(503, message, "SERVICE_UNAVAILABLE")
    return EngineError(503, body, [(b"retry-after", b"1")])
