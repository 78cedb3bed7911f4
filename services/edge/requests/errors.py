"""Errors as the OpenAI API shapes them, one constructor an error. docs/api.md lists them."""

import orjson

from kvcompass.errors import KVCompassError


class ApiError(KVCompassError):
    """Answers a request with an error. `kind` is the body's `type`, `retry_after_s` a header unless None.

    `final`: no other edge or worker would answer better.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        kind: str = "invalid_request_error",
        param: str | None = None,
        retry_after_s: float | None = None,
        final: bool = False,
    ) -> None:
        super().__init__(message, field=param or "")
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.final = final

    def body(self) -> bytes:
        """The JSON body."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return orjson.dumps({"error": error})

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers of the answer beside its length."""
        headers = [(b"content-type", b"application/json")]
        if self.retry_after_s is not None:
            headers.append((b"retry-after", str(max(1, round(self.retry_after_s))).encode()))
        if self.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        return headers


def bad_request(message: str, param: str | None = None) -> ApiError:
    """The body is not what the endpoint takes; `param` is the JSON path of the fault."""
    return ApiError(400, message, code="invalid_value", param=param)


def context_exceeded(context: int, param: str) -> ApiError:
    """More text than the model's context could ever hold."""
    message = f"This model's context holds {context} tokens; the text is longer by far."
    return ApiError(400, message, code="context_length_exceeded", param=param)


def unauthorized(presented: bool) -> ApiError:
    """No key, or one that nobody here knows."""
    message = "Incorrect API key provided." if presented else "No API key: send `Authorization: Bearer KEY`."
    return ApiError(401, message, code="invalid_api_key")


def forbidden() -> ApiError:
    """A known key that is not an admin's."""
    return ApiError(403, "This route needs an admin key.", code="admin_key_required")


def model_not_found(model: str, served: str) -> ApiError:
    """The fleet serves one model, and it is another."""
    message = f"The model `{model[:100]}` does not exist here; this fleet serves `{served}`."
    return ApiError(404, message, code="model_not_found", param="model")


def unknown_url(method: str, path: str) -> ApiError:
    """No such route."""
    return ApiError(404, f"Invalid URL ({method} {path[:200]}); paths begin with /v1", code="unknown_url")


def method_not_allowed(method: str, path: str) -> ApiError:
    """The route exists and takes another method."""
    return ApiError(405, f"Not allowed to {method} on {path[:200]}.", code="method_not_supported")


def body_too_large(limit: int) -> ApiError:
    """Longer than `limits.body_bytes`."""
    return ApiError(413, f"The request body exceeds {limit} bytes.", code="request_too_large")


def body_too_slow(within_s: float) -> ApiError:
    """Longer under way than `timeouts.body_s`."""
    return ApiError(408, f"The request body did not arrive within {within_s:g} s.", code="request_timeout")


def headers_too_large(limit: int) -> ApiError:
    """Longer than `limits.header_bytes`."""
    return ApiError(431, f"The request headers exceed {limit} bytes.", code="headers_too_large")


def unsupported_encoding(encoding: str) -> ApiError:
    """The edge reads bodies as they come."""
    message = f"content-encoding {encoding[:40]} is not supported; send the JSON as it is."
    return ApiError(415, message, code="unsupported_encoding")


def unsupported_media_type(media_type: str) -> ApiError:
    """Engines take JSON only, and one of them may be across an ocean."""
    message = f"content-type {media_type[:60]} is not supported; send application/json."
    return ApiError(415, message, code="unsupported_media_type")


def overloaded() -> ApiError:
    """`limits.concurrent_requests` are in progress."""
    message = "This edge has as many requests in progress as it accepts."
    return ApiError(503, message, code="overloaded", kind="server_error", retry_after_s=1)


def starting(reasons: list[str]) -> ApiError:
    """The edge cannot route yet."""
    message = "This edge is not ready: " + "; ".join(reasons)
    return ApiError(503, message, code="not_ready", kind="server_error", retry_after_s=1)


def no_worker(message: str, retry_after_s: float = 1) -> ApiError:
    """Every worker that could answer is gone, or was tried."""
    return ApiError(503, message, code="no_worker", kind="server_error", retry_after_s=retry_after_s)


def upstream_failed(message: str) -> ApiError:
    """The last worker tried broke before its first byte."""
    return ApiError(502, message, code="upstream_failed", kind="server_error")


def answer_too_large() -> ApiError:
    """Longer than `limits.answer_bytes`, which it would be again: a 4xx keeps clients from repeating it."""
    message = "The answer is longer than this edge holds: ask for a stream, or for fewer tokens or choices."
    return ApiError(400, message, code="answer_too_large", final=True)


def upstream_timeout(message: str) -> ApiError:
    """Nothing came in time."""
    return ApiError(504, message, code="upstream_timeout", kind="server_error")


def internal() -> ApiError:
    """A fault of the edge itself; the log has it under the request id."""
    return ApiError(
        500, "The edge failed; its log has the request id.", code="internal_error", kind="server_error"
    )
