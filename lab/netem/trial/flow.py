"""A stream of numbered UDP packets between two hosts, and what became of them."""

import select
import socket
import statistics
import struct
import threading
import time
from dataclasses import dataclass
from typing import Final

from lab.netem.trial.namespaces import Namespaces

_PORT: Final = 9700
_HEAD: Final = struct.Struct(">Iq")
_SO_TIMESTAMPNS: Final = 35
_STAMP: Final = struct.Struct("=qq")
_BUFFER_BYTES: Final = 8 << 20
IP_UDP_BYTES: Final = 28
"""What the headers add to a payload."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What arrived of `sent` packets. Arrival times are the kernel's."""

    sent: int
    arrivals: tuple[tuple[int, int, int], ...]
    """(number, sent_ns, arrived_ns) in the order of arrival, second copies too."""
    packet_bytes: int

    @property
    def delays_ms(self) -> list[float]:
        """One-way times."""
        return [(arrived - sent) / 1e6 for _, sent, arrived in self.arrivals]

    @property
    def median_ms(self) -> float:
        """Median one-way time; NaN when nothing arrived."""
        return statistics.median(self.delays_ms) if self.arrivals else float("nan")

    @property
    def unhindered_ms(self) -> float:
        """One-way time of the fastest tenth: of packets that no busy core held up. NaN: none arrived."""
        return sorted(self.delays_ms)[len(self.arrivals) // 10] if self.arrivals else float("nan")

    @property
    def lost(self) -> float:
        """Share of the packets that never arrived."""
        return 1.0 - len({number for number, _, _ in self.arrivals}) / self.sent

    @property
    def duplicated(self) -> float:
        """Second copies for each packet that arrived."""
        distinct = len({number for number, _, _ in self.arrivals})
        return (len(self.arrivals) - distinct) / max(1, distinct)

    @property
    def overtaking(self) -> int:
        """Packets that arrived before one sent earlier."""
        latest, found = 0, 0
        for number, _, _ in reversed(self.arrivals):
            found += bool(latest and number > latest)
            latest = number if not latest else min(latest, number)
        return found

    @property
    def mbit_s(self) -> float:
        """What arrived from the first to the last arrival, at the IP layer."""
        span_ns = self.arrivals[-1][2] - self.arrivals[0][2]
        return 8e3 * (len(self.arrivals) - 1) * self.packet_bytes / span_ns


def run_flow(
    namespaces: Namespaces,
    origin: str,
    destination: str,
    *,
    packets: int,
    per_s: float,
    payload: int = 100,
    wait_s: float = 0.6,
) -> Flow:
    """Sends from host to host, waits `wait_s` for the last ones, and returns what arrived."""
    with namespaces.inside(f"host-{destination}"):
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with namespaces.inside(f"host-{origin}"):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with receiver, sender:
        receiver.bind((namespaces.host(destination), _PORT))
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        receiver.setblocking(False)
        arrivals: list[tuple[int, int, int]] = []
        ended = threading.Event()
        collector = threading.Thread(target=_collect, args=(receiver, arrivals, ended))
        collector.start()
        try:
            _send(sender, (namespaces.host(destination), _PORT), packets, per_s, payload)
            time.sleep(wait_s)
        finally:
            ended.set()
            collector.join()
    return Flow(packets, tuple(arrivals), payload + IP_UDP_BYTES)


def _send(sender: socket.socket, to: tuple[str, int], packets: int, per_s: float, payload: int) -> None:
    filling = bytes(payload - _HEAD.size)
    started = time.monotonic()
    for number in range(packets):
        ahead_s = started + number / per_s - time.monotonic()
        if ahead_s > 0.0005:  # small steps are taken in bursts
            time.sleep(ahead_s)
        sender.sendto(_HEAD.pack(number, time.time_ns()) + filling, to)


def _collect(receiver: socket.socket, arrivals: list[tuple[int, int, int]], ended: threading.Event) -> None:
    space = socket.CMSG_SPACE(_STAMP.size)
    while not ended.is_set():
        select.select([receiver], [], [], 0.1)
        while True:
            try:
                data, ancillary, _, _ = receiver.recvmsg(2_048, space)
            except BlockingIOError:
                break
            seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
            number, sent_ns = _HEAD.unpack_from(data)
            arrivals.append((number, sent_ns, seconds * 1_000_000_000 + nanoseconds))
