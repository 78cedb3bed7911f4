"""A relayed TCP connection: two sockets and two lanes."""

import asyncio
import socket
import struct
from typing import cast

from lab.relay.lane import End, Lane
from lab.relay.wire import Wire

_LINGER_NONE = struct.pack("ii", 1, 0)


def reset(transport: asyncio.Transport) -> None:
    """Closes with RST; a plain abort would say FIN, which to a reader is an orderly end."""
    kernel_socket = transport.get_extra_info("socket")
    if kernel_socket is not None:
        kernel_socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    transport.abort()


class Socket(asyncio.Protocol):
    """One of the two sockets. What it reads goes to `lane`; the other lane delivers to it."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self._writable = True
        self._ended_write = False
        self.ended_read = False
        """The peer sends no more."""
        self.transport: asyncio.Transport | None = None
        self.lane: Lane | None = None
        self.inbound: Lane | None = None

    @property
    def accepts(self) -> bool:
        """False while the kernel's send buffer is full."""
        return self._writable and self.transport is not None

    def deliver(self, item: bytes | End) -> None:
        """Writes bytes, half-closes or resets."""
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        if isinstance(item, bytes):
            transport.write(item)
        elif item is End.ABORT:
            reset(transport)
        else:
            self._ended_write = True
            transport.write_eof()
            self._close_if_ended()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the socket is connected."""
        self.transport = cast(asyncio.Transport, transport)
        self._connection.opened(self)

    def data_received(self, data: bytes) -> None:
        """asyncio: bytes to carry."""
        if self.lane is not None:
            self.lane.push(data)

    def eof_received(self) -> bool:
        """asyncio: the peer half-closed; the other direction stays open."""
        self.ended_read = True
        if self.lane is not None:
            self.lane.push(End.HALF_CLOSE)
        self._close_if_ended()
        self._connection.ended(self)
        return True

    def pause_writing(self) -> None:
        """asyncio: the peer reads slowly."""
        self._writable = False

    def resume_writing(self) -> None:
        """asyncio: there is room again."""
        self._writable = True
        if self.inbound is not None:
            self.inbound.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the socket is gone; the other one is told after the travel time."""
        ended = self.ended_read and self._ended_write
        if not ended and self.lane is not None:
            self.lane.push(End.ABORT)
        self.transport = None
        self._connection.lost(self)

    def pause_reading(self) -> None:
        """The lane is full."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """The lane has room."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def _close_if_ended(self) -> None:
        if self.ended_read and self._ended_write and self.transport is not None:
            self.transport.close()


class Connection:
    """Opens the far socket when the client's SYN would have arrived; a handshake costs one round trip.

    A real client would wait for the handshake before it counts as connected; here it is connected at once
    and its first bytes leave one round trip later, which is the same to whoever waits for an answer.
    A far side that refuses shows as a reset, not as a refusal. A client that hangs up while a partition keeps
    the far socket from opening is gone: it would still be waiting for its handshake.
    """

    def __init__(
        self, host: str, port: int, out: Wire, back: Wire, open_connections: set["Connection"]
    ) -> None:
        self._host, self._port = host, port
        self._out, self._back = out, back
        self._open_connections = open_connections
        self._dial: asyncio.Task[None] | None = None
        self.near = Socket(self)
        self.far = Socket(self)

    def opened(self, which: Socket) -> None:
        """A socket is connected."""
        if which is self.near:
            self._open_connections.add(self)
            now = asyncio.get_running_loop().time()
            arrival = self._out.travel_s()
            answered = now + arrival + self._back.travel_s()
            self.near.lane = Lane(
                self._out, opens_at=answered, pause=self.near.pause_reading, resume=self.near.resume_reading
            )
            self.far.lane = Lane(
                self._back, opens_at=0.0, pause=self.far.pause_reading, resume=self.far.resume_reading
            )
            self.near.inbound, self.far.inbound = self.far.lane, self.near.lane
            self.far.lane.connect(self.near)
            self._dial = asyncio.create_task(self._connect(arrival))
        elif self.near.lane is not None:
            self.near.lane.connect(self.far)

    def ended(self, which: Socket) -> None:
        """A peer sends no more."""
        if which is self.near and self.far.transport is None and self._partitioned():
            self.close()

    def lost(self, which: Socket) -> None:
        """A socket is gone. The other one gone, or never there: the connection is over."""
        if which.inbound is not None:
            which.inbound.close()
        other = self.far if which is self.near else self.near
        if other.transport is None:
            self.close()

    def close(self) -> None:
        """Resets both sockets now."""
        self._open_connections.discard(self)
        if self._dial is not None:
            self._dial.cancel()
        for end in (self.near, self.far):
            if end.lane is not None:
                end.lane.close()
            if end.transport is not None:
                reset(end.transport)

    async def _connect(self, arrival_s: float) -> None:
        await asyncio.sleep(arrival_s)
        while self._partitioned():
            if self.near.ended_read:
                self.close()
                return
            await self._out.healing()
            await self._back.healing()
            await asyncio.sleep(self._out.travel_s())
        try:
            async with asyncio.timeout(5.0):
                await asyncio.get_running_loop().create_connection(lambda: self.far, self._host, self._port)
        except (OSError, TimeoutError):
            if self.far.lane is not None:
                self.far.lane.push(End.ABORT)

    def _partitioned(self) -> bool:
        return self._out.partitioned or self._back.partitioned
