"""An engine's event sockets: the live stream, and the replay of past batches."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Self

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from kvcompass.errors import KVCompassError
from kvcompass.roles.engine_feed import SEQUENCE_MOST
from services.worker_agent.incoming import Incoming, has_news, plain_socket
from services.worker_agent.zmq_connect import connect

_END: Final = b"\xff" * 8
_QUEUED_BATCHES: Final = 20_000
"""In a socket's receive queue, twice an engine's replay ring. What overflows is a hole, and is replayed."""
_REPLAY_WAITS: Final = 10
"""An engine may keep a whole replay waiting for so many times as long as for one batch: one that answers now
and then would be listened to for ever, and its live events not at all."""
_FRAME_BYTES: Final = 32 << 20
"""Of one frame; a longer one ends the connection. Evicting two million blocks at once takes 20 MB."""


class EventSourceError(KVCompassError):
    """An engine's event socket does not answer."""


class NoPublisherError(EventSourceError):
    """Nobody publishes events where they should come from."""


class LiveEvents:
    """The PUB stream of an engine, for as long as one connection lasts. An async context manager."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str) -> None:
        self._endpoint = endpoint
        self._socket = plain_socket(context, zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, _QUEUED_BATCHES)
        self._socket.setsockopt(zmq.MAXMSGSIZE, _FRAME_BYTES)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, 1_000)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3_000)
        self._socket.setsockopt(zmq.SUBSCRIBE, b"")
        self._monitor: Any = _monitor(context, self._socket)
        self._incoming = Incoming(self._socket)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._incoming.close()

    async def connect(self, timeout_s: float) -> None:
        """Return once the publisher has accepted. Errors: EventSourceError; NoPublisherError in time."""
        _connect(self._socket, self._endpoint, "events")
        try:
            async with asyncio.timeout(timeout_s):
                await self._wait_for(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        except TimeoutError as error:
            raise NoPublisherError(
                f"no event publisher answers at {self._endpoint}", field="events"
            ) from error

    async def disconnected(self) -> None:
        """Return when the connection breaks."""
        await self._wait_for(zmq.EVENT_DISCONNECTED)

    async def next(self, quiet_ms: int) -> tuple[int, bytes] | None:
        """Return the next batch's number and payload; None when none came for so long.

        Messages that are no numbered batch are passed over; the end mark of a replay is no number.
        Errors: EventSourceError for a number that no engine counts up to.
        """
        while (frames := await self._incoming.next(quiet_ms)) is not None:
            if len(frames) >= 2 and len(frames[-2]) == len(_END) and frames[-2] != _END:
                return _number(frames[-2], self._endpoint, "events"), frames[-1]
            await asyncio.sleep(0)
        return None

    @property
    def waits(self) -> bool:
        """Whether something has come and was not read."""
        return self._incoming.waits

    async def _wait_for(self, event: int) -> None:
        while (await recv_monitor_message(self._monitor))["event"] != event:
            pass


async def replay(
    context: zmq.asyncio.Context, endpoint: str, start: int, timeout_s: float
) -> AsyncGenerator[tuple[int, bytes]]:
    """Yield the batches from number `start` on that the engine still has, in order.

    Batches that were not asked for, or come again, are passed over. Close it (`aclosing`) when leaving early.
    Errors: EventSourceError when the next batch is waited for longer than `timeout_s`, all of them together
    longer than ten times that, or one has a number that no engine counts up to.
    """
    clock = asyncio.get_running_loop().time
    socket = context.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.RCVHWM, _QUEUED_BATCHES)
        socket.setsockopt(zmq.MAXMSGSIZE, _FRAME_BYTES)
        socket.setsockopt(zmq.LINGER, 0)
        _connect(socket, endpoint, "replay")
        async with asyncio.timeout(timeout_s):
            await socket.send_multipart([b"", start.to_bytes(8, "big")])
        newest, left_s, waited_s = start - 1, _REPLAY_WAITS * timeout_s, 0.0
        while True:
            least_s, asked, ready = min(timeout_s - waited_s, left_s), clock(), has_news(socket)
            if least_s <= 0 or not await socket.poll(math.ceil(least_s * 1_000)):
                raise EventSourceError(f"no replay comes from {endpoint}, or no end of it", field="replay")
            frames = await socket.recv_multipart()
            took_s = clock() - asked
            is_batch = len(frames) >= 2 and len(frames[-2]) == len(_END)
            if is_batch and frames[-2] == _END:
                return
            if is_batch and (number := _number(frames[-2], endpoint, "replay")) > newest:
                newest, waited_s, left_s = number, 0.0, left_s - took_s * (not ready)
                yield number, frames[-1]
            else:
                waited_s, left_s = waited_s + took_s, left_s - took_s
                await asyncio.sleep(0)
    finally:
        socket.close(linger=0)


def _monitor(context: zmq.asyncio.Context, socket: zmq.Socket[bytes]) -> zmq.asyncio.Socket:
    """What happens to a socket's connection, as messages of another."""
    address = f"inproc://connection of {socket.FD}"
    socket.monitor(address, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
    monitor = context.socket(zmq.PAIR)
    monitor.connect(address)
    return monitor


def _number(frame: bytes, endpoint: str, field: str) -> int:
    number = int.from_bytes(frame, "big")
    if number >= SEQUENCE_MOST:
        raise EventSourceError(f"{endpoint} numbers a batch {number}, as no engine does", field=field)
    return number


def _connect(socket: zmq.Socket[Any], endpoint: str, field: str) -> None:
    try:
        connect(socket, endpoint)
    except zmq.ZMQError as error:
        raise EventSourceError(f"{endpoint} is no endpoint to connect to: {error}", field=field) from error


async def has_batch(
    context: zmq.asyncio.Context, endpoint: str, number: int, payload: bytes, timeout_s: float
) -> bool:
    """Whether the engine's batch of a number is this one: the same engine process still runs."""
    try:
        async with aclosing(replay(context, endpoint, number, timeout_s)) as batches:
            async for found in batches:
                return found == (number, payload)
    except EventSourceError:
        pass
    return False
