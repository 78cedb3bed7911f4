"""Connects sockets to what engines publish at."""

import zmq
import zmq.asyncio


def connect(socket: zmq.asyncio.Socket, endpoint: str) -> None:
    """Connect; ZMQ knows no IPv6 address unless it is told to expect one. Errors: zmq.ZMQError."""
    if endpoint.startswith("tcp://["):
        socket.setsockopt(zmq.IPV6, 1)
    socket.connect(endpoint)
