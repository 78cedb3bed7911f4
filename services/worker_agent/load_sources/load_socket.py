"""What SGLang 0.5.23 publishes over ZMQ with `--load-publish-endpoint`: `[b"load", seq, LoadStat]`."""

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
import zmq
import zmq.asyncio

from kvcompass.engine_facts import EventPublisher
from kvcompass.roles.engine_fit import rank_endpoint
from kvcompass.roles.queue_estimate import EngineLoad
from services.worker_agent.engine_client import EngineClient, EngineError, MalformedError, decoded
from services.worker_agent.incoming import Incoming, plain_socket
from services.worker_agent.load_sources.source import Amount, Requests
from services.worker_agent.zmq_connect import connect

_TOPIC: Final = b"load"
_QUEUED: Final = 256
"""Loads between two looks: engines tell one every few steps. What overflows was older than nothing."""
_FRAME_BYTES: Final = 16 << 10
_STANDS_US: Final = 1_200_000
"""SGLang tells a load when it changes, and an unchanged one again after a second."""


class _LoadStat(msgspec.Struct, frozen=True, array_like=True, tag="LoadStat"):
    """Later versions append fields."""

    num_running_reqs: Requests
    num_waiting_reqs: Requests
    num_tokens: Amount
    max_total_num_tokens: Amount
    attn_dp_rank: int | None = None
    num_waiting_uncached_tokens: Amount | None = None
    num_total_tokens: Amount | None = None
    max_running_requests: Amount | None = None
    total_prefill_uncached_tokens: Amount | None = None
    total_prefill_busy_us: Amount | None = None


_Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class _KvEvents(msgspec.Struct, frozen=True):
    load_endpoint_port_base: _Port | None = None
    dp_size: Annotated[int, msgspec.Meta(ge=1, le=1_024)] = 1


class _ServerInfo(msgspec.Struct, frozen=True):
    kv_events: _KvEvents | None = None


_INFO = msgspec.json.Decoder(_ServerInfo)
_STAT = msgspec.msgpack.Decoder(_LoadStat)


async def load_endpoint(client: EngineClient, url: str, rank: int | None) -> str | None:
    """Where a rank's load is published; None where none is, or where a worker is several ranks.

    Args:
        client: Of the engine.
        url: The engine's, whose host the publisher has too.
        rank: The worker's; None for a whole engine.

    Errors: EngineError.
    """
    told = (await client.get("/server_info", _INFO)).kv_events
    if told is None or told.load_endpoint_port_base is None or (rank is None and told.dp_size > 1):
        return None
    base = f"tcp://*:{told.load_endpoint_port_base}"
    host = urlsplit(url).hostname or ""
    return rank_endpoint(EventPublisher(base), base, f"[{host}]" if ":" in host else host, rank or 0) or None


class Published(NamedTuple):
    """A load that came by itself, and when."""

    load: EngineLoad
    heard_us: int


class LoadSocket:
    """The load that an engine last published. Reconnects by itself; close it.

    ZMQ gives a connection up for good that brought a frame longer than it may be. So a socket that has been
    quiet for too long is replaced.
    """

    def __init__(
        self, context: zmq.asyncio.Context, endpoint: str, now_us: Callable[[], int], quiet_ms: int
    ) -> None:
        """`quiet_ms`: a socket that has brought nothing for so long is opened anew. Errors: EngineError."""
        self._context = context
        self.endpoint: Final = endpoint
        self._now_us = now_us
        self._quiet_us = quiet_ms * 1_000
        self._newest: Published | None = None
        self.malformed = 0
        """Messages that were no load. Monotonic."""
        self._incoming = self._opened()
        self._opened_at_us = now_us()

    @property
    def speaks(self) -> bool:
        """Whether a load came lately."""
        return self._newest is not None and self._now_us() - self._newest.heard_us <= self._quiet_us

    def newest(self) -> Published | None:
        """The load now; None when it was not told lately."""
        newest: EngineLoad | None = None
        for _ in range(_QUEUED):
            frames = self._incoming.take()
            if frames is None:
                break
            try:
                newest = _load(frames)
            except MalformedError:
                self.malformed += 1
        now_us = self._now_us()
        if newest is not None:
            self._newest = Published(newest, now_us)
        elif not self.speaks and now_us - self._opened_at_us > self._quiet_us:
            self._open_anew()
        stands = self._newest is not None and now_us - self._newest.heard_us <= _STANDS_US
        return self._newest if stands else None

    def close(self) -> None:
        """Stop listening."""
        self._incoming.close()

    def _open_anew(self) -> None:
        self._opened_at_us = self._now_us()
        with suppress(EngineError):
            opened = self._opened()
            self._incoming.close()
            self._incoming = opened

    def _opened(self) -> Incoming:
        """Errors: EngineError."""
        socket = None
        try:
            socket = plain_socket(self._context, zmq.SUB)
            socket.setsockopt(zmq.RCVHWM, _QUEUED)
            socket.setsockopt(zmq.MAXMSGSIZE, _FRAME_BYTES)
            socket.setsockopt(zmq.LINGER, 0)
            socket.setsockopt(zmq.SUBSCRIBE, _TOPIC)
            connect(socket, self.endpoint)
        except zmq.ZMQError as error:
            if socket is not None:
                socket.close(linger=0)
            raise EngineError(
                f"{self.endpoint} is no endpoint to connect to: {error}", field="load"
            ) from error
        return Incoming(socket)


def _load(frames: list[bytes]) -> EngineLoad:
    if len(frames) != 3 or frames[0] != _TOPIC:
        raise MalformedError(f"a load of {len(frames)} frames", field="load")
    stat = decoded(_STAT, frames[2], "the load socket")
    return EngineLoad(
        running=stat.num_running_reqs,
        waiting=stat.num_waiting_reqs,
        used_tokens=stat.num_tokens,
        max_tokens=stat.max_total_num_tokens,
        waiting_uncached_tokens=stat.num_waiting_uncached_tokens,
        prefill_uncached_tokens=stat.total_prefill_uncached_tokens,
        prefill_busy_us=stat.total_prefill_busy_us,
    )
