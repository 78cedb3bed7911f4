"""One HTTP exchange on top of ASGI: headers, a bounded body, one answer, and the client's presence."""

import asyncio
import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Any, Self

from services.edge.requests.errors import (
    ApiError,
    body_too_large,
    body_too_slow,
    headers_too_large,
    unsupported_encoding,
    unsupported_media_type,
)
from services.edge.requests.event_stream import error_event

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

_LAST_WORD_S = 2.0
"""For a client to take an error; else its answer is left unfinished, which closes the connection."""
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")


class ClientGoneError(Exception):
    """The client closed its connection before the answer was complete."""


class DeadlineError(Exception):
    """`timeouts.total_s` is over."""


class Exchange:
    """A request and the answer to it. Every answer carries the request id; nothing is sent twice."""

    __slots__ = ("_receive", "_send", "ended", "headers", "method", "path", "request_id", "started")

    def __init__(self, scope: Message, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        given = self.headers.get(b"x-request-id", b"")
        self.request_id: bytes = given if _REQUEST_ID.fullmatch(given) else new_request_id()
        self.started = False
        self.ended = False

    def check_headers(self, limit: int) -> None:
        """Errors: ApiError 431 above `limit` bytes, 415 for a compressed body."""
        if sum(len(name) + len(value) for name, value in self.headers.items()) > limit:
            raise headers_too_large(limit)
        encoding = self.headers.get(b"content-encoding", b"identity")
        if encoding != b"identity":
            raise unsupported_encoding(encoding.decode("latin-1"))

    def check_json(self) -> None:
        """Errors: ApiError 415 when the body is called anything but JSON; one without a name may be."""
        given = self.headers.get(b"content-type", b"application/json").decode("latin-1")
        if given.partition(";")[0].strip().lower() != "application/json":
            raise unsupported_media_type(given)

    async def body(self, limit: int, within_s: float) -> bytes:
        """The whole body. Errors: ApiError 413 above `limit` bytes, 408 when it is slow, ClientGoneError."""
        try:
            async with asyncio.timeout(within_s):
                return await self._body(limit)
        except TimeoutError as error:
            raise body_too_slow(within_s) from error

    async def _body(self, limit: int) -> bytes:
        announced = self.headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > limit:
            raise body_too_large(limit)
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            piece = message.get("body", b"")
            size += len(piece)
            if size > limit:
                raise body_too_large(limit)
            pieces.append(piece)
            if not message.get("more_body", False):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def gone(self) -> None:
        """Returns when the client is gone. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def start(self, status: int, headers: list[Header]) -> None:
        """Sends status and headers."""
        assert not self.started
        self.started = True
        headers = [*headers, (b"x-request-id", self.request_id)]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, data: bytes) -> None:
        """Sends a piece of the answer's body; waits while the client's socket is full."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Sends the last piece."""
        self.ended = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def answer(self, status: int, headers: list[Header], body: bytes) -> None:
        """A whole answer at once."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(body))])
        await self.end(body)

    async def refuse(self, error: ApiError, extra: list[Header] | None = None) -> None:
        """An error answer, unless the client does not take it. What is left of the request's body the server
        reads and drops: closing on a client that still writes would take the answer away from it.
        """
        await _last_word(self.answer(error.status, error.headers() + (extra or []), error.body()))

    async def cut(self, error: ApiError) -> None:
        """Ends a started answer with an error event: how a client of a stream learns that it is not whole."""
        await _last_word(self.end(error_event(error.body())))


async def _last_word(sending: Awaitable[None]) -> None:
    """Sends within a bound: a client that stopped reading may be what the request's time was spent on."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(sending, _LAST_WORD_S)


class Presence:
    """Bounds a block by time and by the client's presence.

    Leaves with ClientGoneError or DeadlineError, having cancelled whatever the block was waiting for.
    """

    def __init__(self, exchange: Exchange, total_s: float) -> None:
        self._exchange = exchange
        self._scope = asyncio.timeout(total_s)
        self._gone = False
        self._left = False

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        self._watch = asyncio.ensure_future(self._exchange.gone())
        self._watch.add_done_callback(self._client_gone)
        return self

    def _client_gone(self, watch: asyncio.Future[None]) -> None:
        if not watch.cancelled() and not self._left and not self._exchange.ended:
            self._gone = True
            self._scope.reschedule(asyncio.get_running_loop().time())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._watch.cancel()
        try:
            await self._scope.__aexit__(kind, error, trace)
        except TimeoutError as timeout:
            raise (ClientGoneError if self._gone else DeadlineError) from timeout


def new_request_id() -> bytes:
    """A fresh request id."""
    return b"req-" + secrets.token_hex(12).encode()
