"""The way to an engine or a peer edge: pooled aiohttp, every wait bounded, foreign errors translated."""

import asyncio
import io
import socket
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Final, Self

import aiohttp
from yarl import URL

from kvcompass.roles.attempts import Fault
from services.edge.settings import Timeouts
from services.runtime.settings import TlsSettings
from services.runtime.tls import client_context

_RAW_BODY_BYTES = 1 << 20
"""aiohttp writes larger bodies in one go only from a file object."""
_WORKER_KEEPALIVE_S = 4.0
"""Engines close idle connections after 5 s (uvicorn's default): let go before they do."""
_PEER_KEEPALIVE_S = 60.0
"""A new connection between regions costs a round trip; the peer listener keeps one for 75 s."""
_PIGGYBACK_BYTES = 256 << 10
"""A queue vector takes about 80 bytes a worker in its header."""
_PROBES: Final = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5, "TCP_USER_TIMEOUT": 15_000}
"""Seconds of silence before the first probe and between probes; probes in vain that end a connection;
milliseconds for what was sent to be acknowledged. 15 s: a partition that heals sooner costs nothing."""


class UpstreamError(Exception):
    """An upstream failed; expected, and counted by its kind."""

    def __init__(self, fault: Fault, detail: str) -> None:
        super().__init__(f"{fault.value}: {detail}")
        self.fault = fault


class UpstreamAnswer:
    """Status, headers and the body in pieces. Leaving it closes the connection unless all was read."""

    def __init__(self, response: aiohttp.ClientResponse, idle_s: float) -> None:
        self._response = response
        self._idle_s = idle_s
        self.status = response.status
        self.headers = response.headers

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # close() is what an engine notices and stops generating; after a whole answer it is a no-op.
        self._response.close()

    @property
    def content_type(self) -> str:
        """Lower case, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def pieces(self, first_s: float) -> AsyncIterator[bytes]:
        """The body as it arrives, nothing empty. `first_s` bounds the first piece. Errors: UpstreamError."""
        wait_s = first_s
        content = self._response.content
        while True:
            try:
                async with asyncio.timeout(wait_s):
                    piece = await content.readany()
            except TimeoutError as error:
                raise UpstreamError(Fault.SILENT, f"nothing for {wait_s:g} s") from error
            except (aiohttp.ClientError, OSError) as error:
                raise UpstreamError(Fault.CUT, type(error).__name__) from error
            if not piece:
                return
            wait_s = self._idle_s
            yield piece

    async def read(self, first_s: float, limit: int) -> bytes:
        """The whole body. Errors: UpstreamError, also when it exceeds `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self.pieces(first_s):
            size += len(piece)
            if size > limit:
                raise UpstreamError(Fault.OVERSIZED, f"more than {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)


def _probing_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices when the other end is gone without a word (power, a cut WAN), also while it waits
    for an answer: the network is asked every few seconds, whatever the first byte may take.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        option = getattr(socket, name, None)  # macOS has not all of them, and then its defaults
        if option is not None:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


class Upstream:
    """A pool of connections. `connections` bounds it; requests beyond wait within their own deadline."""

    def __init__(
        self, timeouts: Timeouts, *, connections: int, keepalive_s: float, tls: TlsSettings | None = None
    ) -> None:
        self._timeouts = timeouts
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections,
                keepalive_timeout=keepalive_s,
                socket_factory=_probing_socket,
                ssl=client_context(tls) if tls is not None else True,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            max_field_size=_PIGGYBACK_BYTES,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeouts.connect_s),
            skip_auto_headers=("User-Agent",),
        )

    @classmethod
    def to_workers(cls, timeouts: Timeouts, connections: int) -> Self:
        """For engines of the own region: plain HTTP."""
        return cls(timeouts, connections=connections, keepalive_s=_WORKER_KEEPALIVE_S)

    @classmethod
    def to_peers(cls, timeouts: Timeouts, connections: int, tls: TlsSettings | None) -> Self:
        """For edges of other regions."""
        return cls(timeouts, connections=connections, keepalive_s=_PEER_KEEPALIVE_S, tls=tls)

    async def post(
        self, url: URL, headers: Mapping[str, str], body: bytes, first_byte_s: float
    ) -> UpstreamAnswer:
        """Sends a request and waits for status and headers. Errors: UpstreamError."""
        data = body if len(body) < _RAW_BODY_BYTES else io.BytesIO(body)
        try:
            async with asyncio.timeout(first_byte_s):
                response = await self._session.post(url, data=data, headers=headers, allow_redirects=False)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UpstreamError(Fault.UNREACHABLE, type(error).__name__) from error
        except TimeoutError as error:
            raise UpstreamError(Fault.SILENT, f"no answer for {first_byte_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamError(Fault.BROKEN, type(error).__name__) from error
        return UpstreamAnswer(response, self._timeouts.idle_s)

    async def close(self) -> None:
        """Closes the pool."""
        await self._session.close()
