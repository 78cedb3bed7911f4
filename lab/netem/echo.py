"""Asks every other router for an echo once a second, and answers theirs. One thread, one UDP socket.

Echoes go from gateway address to gateway address, so they are shaped as the regions' own packets are.
"""

import select
import socket
import struct
import threading
import time
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Final

from lab.netem.round_trips import RoundTrips
from lab.netem.settings import ECHO_PORT

_MESSAGE: Final = struct.Struct(">4sBxxxI")
_MAGIC: Final = b"kvcw"
_ASK: Final = 0
_ANSWER: Final = 1
_PERIOD_S: Final = 1.0
_BATCH: Final = 64


class Echo:
    """`peers` holds the gateway address of every other region; packets from elsewhere are ignored."""

    def __init__(self, own: IPv4Address, peers: Mapping[str, IPv4Address]) -> None:
        self._own = str(own)
        self._peers = {str(address): region for region, address in peers.items()}
        self._trips = {region: RoundTrips() for region in peers}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="echo", daemon=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def start(self) -> None:
        """Binds and starts. Raises: OSError when the port is taken."""
        self._socket.bind((self._own, ECHO_PORT))
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        self._socket.close()

    def rtts_ms(self) -> dict[str, float]:
        """Measured round trips by region; those in silence are left out."""
        now_ns = time.monotonic_ns()
        with self._lock:
            found = {region: trips.rtt_ms(now_ns) for region, trips in self._trips.items()}
        return {region: rtt_ms for region, rtt_ms in found.items() if rtt_ms is not None}

    def forget(self, region: str) -> None:
        """The link to `region` has changed: measures anew."""
        with self._lock:
            self._trips[region].forget()

    def _run(self) -> None:
        next_round = time.monotonic()
        while not self._stopping.is_set():
            wait_s = next_round - time.monotonic()
            if wait_s > 0.0:
                ready, _, _ = select.select([self._socket], [], [], wait_s)
                if ready:
                    self._receive()
                continue
            next_round = max(next_round + _PERIOD_S, time.monotonic())
            self._ask_all()

    def _ask_all(self) -> None:
        for address, region in self._peers.items():
            with self._lock:
                number = self._trips[region].send(time.monotonic_ns())
            self._send(_ASK, number, address)

    def _receive(self) -> None:
        for _ in range(_BATCH):
            try:
                data, (address, _) = self._socket.recvfrom(64, socket.MSG_DONTWAIT)
            except OSError:  # nothing more, or an ICMP error to an earlier echo
                return
            region = self._peers.get(address)
            if region is None or len(data) != _MESSAGE.size:
                continue
            magic, kind, number = _MESSAGE.unpack(data)
            if magic != _MAGIC:
                continue
            if kind == _ASK:
                self._send(_ANSWER, number, address)
            else:
                with self._lock:
                    self._trips[region].answered(number, time.monotonic_ns())

    def _send(self, kind: int, number: int, address: str) -> None:
        try:
            self._socket.sendto(_MESSAGE.pack(_MAGIC, kind, number & 0xFFFFFFFF), (address, ECHO_PORT))
        except OSError:  # a cut drops our own packets with EPERM; the silence is what is told
            return
