"""Connects sockets to what engines publish at."""

from typing import Any

import zmq


def connect(socket: zmq.Socket[Any], endpoint: str) -> None:
    """Connect; ZMQ knows no IPv6 address unless it is told to expect one. Errors: zmq.ZMQError."""
    if endpoint.startswith("tcp://["):
        socket.setsockopt(zmq.IPV6, 1)
    socket.connect(endpoint)
