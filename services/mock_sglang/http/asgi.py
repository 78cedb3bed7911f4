"""The little of ASGI that the routes need: a bounded body, a JSON answer, a watch for the client leaving."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

from services.mock_sglang.errors import EngineError, flat_error

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

MAX_BODY_BYTES = 32 << 20
BODY_TIMEOUT_S = 60.0


class ClientGoneError(Exception):
    """The client closed the connection before its request was complete."""


async def read_body(receive: Receive) -> bytes:
    """The whole body. Raises EngineError over a bound, ClientGoneError when the client leaves."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                part: bytes = message.get("body", b"")
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise EngineError(413, flat_error(413, "The body is too large.", "BadRequestError"))
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise EngineError(408, flat_error(408, "The body came too slowly.", "BadRequestError")) from error


async def until_disconnect(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def send_json(
    send: Send, status: int, value: object, headers: list[tuple[bytes, bytes]] | None = None
) -> None:
    """A complete JSON response."""
    await send_bytes(send, status, b"application/json", orjson.dumps(value), headers)


async def send_bytes(
    send: Send,
    status: int,
    content_type: bytes,
    body: bytes,
    headers: list[tuple[bytes, bytes]] | None = None,
) -> None:
    """A complete response."""
    start = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": start + (headers or [])})
    await send({"type": "http.response.body", "body": body})
