"""What comes in at a ZMQ socket, without a future for each message: those cost more than all the rest."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import zmq
import zmq.asyncio


class Incoming:
    """Messages of one socket, in order. The event loop tells when there may be more; close it.

    ZMQ's descriptor becomes readable when something happens and not again until that was looked into, so it
    is waited for only after a look has found nothing.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        """`socket` is closed with this."""
        self.socket: Final = socket
        self._stirred = asyncio.Event()
        self._forget: Callable[[], object] | None = None

    @property
    def waits(self) -> bool:
        """Whether a message has come and was not read."""
        return has_news(self.socket)

    def take(self) -> list[bytes] | None:
        """Return the frames of the next message; None when none has come. Errors: zmq.ZMQError."""
        try:
            return self.socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None

    async def next(self, quiet_ms: int) -> list[bytes] | None:
        """Return the frames of the next message; None when none came for so long. Errors: zmq.ZMQError."""
        frames = self.take()
        if frames is not None:
            return frames
        self._listen()
        try:
            async with asyncio.timeout(quiet_ms / 1_000):
                while frames is None:
                    self._stirred.clear()
                    if not self.waits:
                        await self._stirred.wait()
                    frames = self.take()
        except TimeoutError:
            return None
        return frames

    def close(self) -> None:
        """Stop listening. May be called twice."""
        if self._forget is not None:
            self._forget()
            self._forget = None
        self.socket.close(linger=0)

    def _listen(self) -> None:
        if self._forget is None:
            loop, descriptor = asyncio.get_running_loop(), int(self.socket.FD)
            loop.add_reader(descriptor, self._stirred.set)
            self._forget = partial(loop.remove_reader, descriptor)


def has_news(socket: zmq.Socket[Any]) -> bool:
    """Whether a message has come to a socket and was not read."""
    return bool(int(socket.get(zmq.EVENTS)) & zmq.POLLIN)


def plain_socket(context: zmq.asyncio.Context, kind: int) -> zmq.Socket[bytes]:
    """Return a socket of the context that knows nothing of event loops. Errors: zmq.ZMQError."""
    return zmq.Context.socket(context, kind, socket_class=zmq.Socket)
