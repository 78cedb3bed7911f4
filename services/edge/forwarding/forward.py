"""One attempt: a request to one upstream, and its answer to the client. Knows transport, not policy."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from multidict import CIMultiDictProxy
from yarl import URL

from kvcompass.roles.attempts import Fault
from services.edge.forwarding.results import Broke, Denier, Refused, Result, Served
from services.edge.forwarding.upstream import Upstream, UpstreamAnswer, UpstreamError
from services.edge.requests.event_stream import EventStream
from services.edge.requests.exchange import Exchange, Header
from services.edge.requests.headers import ATTEMPTS_HEADER, OWN_PREFIX, WORKER_HEADER
from services.edge.settings import Limits, Timeouts

RETRIED_STATUSES = frozenset({502, 503, 504})
"""They say "not here, not now". A 500 may be the request's own fault: it is passed on, not spread."""
DENIED_STATUSES = frozenset({401, 403})
"""The client was let in before, so it is a key of this edge's that is not taken."""
_DEFAULT_RETRY_AFTER_S = 1.0
_DROPPED = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "content-length", "date", "server", "set-cookie", "x-request-id"),
    )
)
"""Headers of one connection, or of another server's identity."""


@dataclass(frozen=True, slots=True)
class Hop:
    """Where an attempt goes: a worker of the own region, or the peer edge of another."""

    url: URL
    headers: Mapping[str, str]
    pool: Upstream
    peer: str = ""
    """Id of the peer edge; empty for a worker."""
    attempts: int = 1
    """How many attempts may be made there, one after the other, before the first byte."""


class Patience:
    """What is left of the time until a first byte. Made inside a running loop."""

    def __init__(self, seconds: float) -> None:
        self._clock = asyncio.get_running_loop().time
        self._until_s = self._clock() + seconds

    @property
    def left_s(self) -> float:
        """Seconds, not below 0."""
        return max(0.0, self._until_s - self._clock())


class Forwarder:
    """Carries out attempts."""

    def __init__(self, limits: Limits, timeouts: Timeouts) -> None:
        self._limits = limits
        self._timeouts = timeouts

    async def attempt(
        self,
        exchange: Exchange,
        hop: Hop,
        body: bytes,
        *,
        stream: bool,
        strip_usage: bool,
        on_headers: Callable[[UpstreamAnswer], None],
        first_byte: Callable[[UpstreamAnswer], list[Header]],
    ) -> Result:
        """Sends `body` along `hop`.

        `on_headers` is called once the upstream's status and headers are known; `first_byte` once, just
        before the answer starts, and returns headers to add to it.
        """
        patience = Patience(self._patience_s(hop, stream))
        try:
            answer = await hop.pool.post(hop.url, hop.headers, body, patience.left_s)
            async with answer:
                on_headers(answer)
                # An edge that refuses by itself names no worker: what it says is not for the client.
                own_refusal = bool(hop.peer) and answer.status >= 400 and WORKER_HEADER not in answer.headers
                denied = answer.status in DENIED_STATUSES and (own_refusal or not hop.peer)
                if answer.status in RETRIED_STATUSES or own_refusal or denied:
                    return _refused(answer, denied_by=Denier.of(hop.peer) if denied else None)
                if answer.status == 200 and answer.content_type == "text/event-stream":
                    return await self._stream(exchange, answer, strip_usage, patience, first_byte)
                return await self._whole(exchange, answer, patience, first_byte)
        except UpstreamError as error:
            return Broke(error.fault, begun=exchange.started)

    def _patience_s(self, hop: Hop, stream: bool) -> float:
        """How long the first byte may take.

        A peer edge gives each of its attempts as long as this edge would, one after the other: who waited for
        less would never see it move a request away from a worker that hangs.
        """
        one_s = self._timeouts.first_byte_s if stream else self._timeouts.answer_s
        return one_s * hop.attempts + self._timeouts.connect_s if hop.peer else one_s

    async def _stream(
        self,
        exchange: Exchange,
        answer: UpstreamAnswer,
        strip_usage: bool,
        patience: Patience,
        first_byte: Callable[[UpstreamAnswer], list[Header]],
    ) -> Served:
        events = EventStream(strip_usage=strip_usage)
        async for piece in answer.pieces(patience.left_s):
            out = events.feed(piece)
            if not out:
                continue
            if not exchange.started:
                await exchange.start(answer.status, passed_headers(answer.headers) + first_byte(answer))
            await exchange.send(out)
        if not exchange.started:
            raise UpstreamError(Fault.CUT, "a stream without events")
        await exchange.end(events.close())
        return Served(answer.status, events.usage)

    async def _whole(
        self,
        exchange: Exchange,
        answer: UpstreamAnswer,
        patience: Patience,
        first_byte: Callable[[UpstreamAnswer], list[Header]],
    ) -> Served:
        body = await answer.read(patience.left_s, self._limits.answer_bytes)
        headers = passed_headers(answer.headers) + first_byte(answer)
        await exchange.answer(answer.status, headers, body)
        return Served(answer.status, _usage(body) if answer.status == 200 else None)


def passed_headers(headers: CIMultiDictProxy[str]) -> list[Header]:
    """An upstream's headers that belong to the client, byte for byte."""
    own = OWN_PREFIX.decode()
    return [
        (name.lower().encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
        for name, value in headers.items()
        if name.lower() not in _DROPPED and not name.lower().startswith(own)
    ]


def _usage(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    usage = parsed.get("usage") if isinstance(parsed, dict) else None
    return usage if isinstance(usage, dict) else None


def _refused(answer: UpstreamAnswer, *, denied_by: Denier | None) -> Refused:
    used = answer.headers.get(ATTEMPTS_HEADER, "")
    return Refused(
        answer.status,
        _seconds(answer.headers.get("retry-after")),
        int(used) if used.isascii() and used.isdigit() and len(used) < 4 else 1,
        denied_by,
    )


def _seconds(retry_after: str | None) -> float:
    try:
        return min(60.0, max(0.0, float(retry_after or _DEFAULT_RETRY_AFTER_S)))
    except ValueError:
        return _DEFAULT_RETRY_AFTER_S
