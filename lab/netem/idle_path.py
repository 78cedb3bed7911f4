"""How fast a prompt crosses after a silence: `python -m lab.netem.idle_path server|client`, figures as JSON.

A connection that carried prompts and then was silent may start anew with ten segments, and need several
round trips for 64 KB. With `SYSCTLS` set at both ends they leave at once. Both ends must be on one machine,
as its containers are: they compare its clock.
"""

import argparse
import json
import math
import socket
import struct
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

PORT: Final = 9603
PROMPT_BYTES: Final = 65_536
IDLE_S: Final = 10.0
TOLERANCE: Final = 0.10
"""How much longer than one way a prompt may take, of one way."""

SYSCTLS: Final = {
    "net.ipv4.tcp_congestion_control": "reno",
    "net.ipv4.tcp_slow_start_after_idle": "0",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_rmem": "4096 262144 16777216",
    "net.ipv4.tcp_wmem": "4096 262144 16777216",
}
"""For every network namespace that speaks across regions; docs/wan.md tells why each."""

_HEAD: Final = struct.Struct(">QI")
"""When it was sent, ns of the machine's monotonic clock, and the bytes that follow."""
_ANSWER: Final = struct.Struct(">Q")
"""How long it travelled, ns."""
_TIMEOUT_S: Final = 30.0
_SMALL_BYTES: Final = 64
_REPEATS: Final = 5


@dataclass(frozen=True, slots=True)
class IdlePath:
    """Times from the first byte sent to the last one received, ms."""

    one_way_ms: float
    """Of a message that fits a packet; the fastest of some."""
    first_ms: float
    """Of a prompt on a new connection: it still has to find out how much the path takes."""
    warm_ms: float
    """Of the last of some prompts in a row."""
    after_idle_ms: float
    """Of a prompt after a silence; the fastest of `silences`, for a busy machine may be late itself."""
    idle_s: float
    silences: int
    prompt_bytes: int = PROMPT_BYTES

    @property
    def ok(self) -> bool:
        """After the silence, the prompt took one way and little more."""
        return self.after_idle_ms <= self.one_way_ms * (1.0 + TOLERANCE)


def listen(port: int = PORT) -> socket.socket:
    """A socket for `serve`, on all interfaces."""
    return socket.create_server(("0.0.0.0", port))


def serve(listener: socket.socket) -> None:
    """Answers one client until it hangs up; others wait in the backlog."""
    listener.settimeout(_TIMEOUT_S)
    connection, _ = listener.accept()
    with connection:
        connection.settimeout(_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while head := _receive(connection, _HEAD.size):
            sent_ns, length = _HEAD.unpack(head)
            _receive(connection, length)
            connection.sendall(_ANSWER.pack(max(0, time.monotonic_ns() - sent_ns)))


def measure(connection: socket.socket, idle_s: float = IDLE_S, most_silences: int = 3) -> IdlePath:
    """Sends small messages, prompts, and one after each silence until it is in time. Raises: OSError."""
    connection.settimeout(_TIMEOUT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    small = [_travel_ms(connection, _SMALL_BYTES) for _ in range(_REPEATS)]
    prompts = [_travel_ms(connection, PROMPT_BYTES) for _ in range(_REPEATS)]
    silences = 0
    after_idle_ms = math.inf
    while True:
        time.sleep(idle_s)
        silences += 1
        after_idle_ms = min(after_idle_ms, _travel_ms(connection, PROMPT_BYTES))
        found = IdlePath(min(small), prompts[0], prompts[-1], after_idle_ms, idle_s, silences)
        if found.ok or silences == most_silences:
            return found


def _travel_ms(connection: socket.socket, length: int) -> float:
    connection.sendall(_HEAD.pack(time.monotonic_ns(), length) + bytes(length))
    answer = _receive(connection, _ANSWER.size)
    if len(answer) != _ANSWER.size:
        raise ConnectionError("the server hung up")
    travelled_ns: int = _ANSWER.unpack(answer)[0]
    return travelled_ns / 1e6


def _receive(connection: socket.socket, length: int) -> bytes:
    """So many bytes, or none at the end of the stream."""
    pieces: list[bytes] = []
    while length > 0:
        piece = connection.recv(min(length, 1 << 18))
        if not piece:
            return b""
        pieces.append(piece)
        length -= len(piece)
    return b"".join(pieces)


def main() -> None:
    """Entry point; a client exits with 1 when the prompt took too long."""
    parser = argparse.ArgumentParser(prog="python -m lab.netem.idle_path", description=__doc__)
    ends = parser.add_subparsers(dest="end", required=True)
    server = ends.add_parser("server", help="serve one client")
    client = ends.add_parser("client", help="measure and print JSON")
    client.add_argument("host")
    client.add_argument("--idle-s", type=float, default=IDLE_S)
    for each in (server, client):
        each.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    if arguments.end == "server":
        with listen(arguments.port) as listener:
            serve(listener)
        return
    with socket.create_connection((arguments.host, arguments.port), _TIMEOUT_S) as connection:
        measured = measure(connection, arguments.idle_s)
    print(json.dumps({**asdict(measured), "ok": measured.ok}))
    sys.exit(0 if measured.ok else 1)


if __name__ == "__main__":
    main()
