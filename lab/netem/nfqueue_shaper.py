"""Shapes with late verdicts: the kernel queues packets as they come in, a thread lets each pass when due.

Packets are taken before routing, where no socket is charged for them any more: a sender's own queue limit
would else throttle it.
"""

import ctypes
import os
import platform
import random
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from kvcompass.wan.link import Link
from lab.netem import nfqueue_wire as wire
from lab.netem.delay_line import MAX_HELD, DelayLine, Fate
from lab.netem.errors import RouterError
from lab.netem.shaper import Counts

_NETLINK_NETFILTER: Final = 12
_SOL_NETLINK: Final = 270
_NETLINK_NO_ENOBUFS: Final = 5
_SO_RCVBUFFORCE: Final = 33
_PR_SET_TIMERSLACK: Final = 29
_SYS_SCHED_SETATTR: Final = 314 if platform.machine() == "x86_64" else 274
_SCHED_ATTR: Final = struct.pack("=IIQiIQQQ", 48, 0, 0, 0, 0, 100_000, 0, 0)
"""struct sched_attr of an ordinary thread that asks for slices of 0.1 ms; Linux 6.12 and newer heed it."""
_BUFFER_BYTES: Final = 16 << 20
_FIRST_QUEUE: Final = 100
_BATCH: Final = 256
_IDLE_S: Final = 0.5
"""How late a stop may be noticed."""
_KERNEL_COUNTS: Final = Path("/proc/net/netfilter/nfnetlink_queue")


class NfqueueShaper:
    """A `Shaper`. Its thread alone touches the delay lines; others set a line's link or read its counters.

    Without the thread the kernel drops what would be shaped: a shaper that died cuts the region off, and
    does not give it a faster network. `failed` is called from the thread when that happens.
    """

    name = "nfqueue"

    def __init__(self, regions: tuple[str, ...], random_seed: int, failed: Callable[[], None]) -> None:
        self._queues = {region: _FIRST_QUEUE + index for index, region in enumerate(regions)}
        self._lines: dict[int, DelayLine] = {}
        self._random = random.Random(random_seed)
        self._failed = failed
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nfqueue", daemon=True)

    def start(self, links: Mapping[str, Link]) -> None:
        """Takes the queues and starts the thread. Raises: RouterError."""
        self._lines = {
            queue: DelayLine(links[region], self._random) for region, queue in self._queues.items()
        }
        self._socket = _open(self._queues.values())
        self._thread.start()

    def change(self, links: Mapping[str, Link]) -> None:
        """Takes effect with the next packet."""
        for region, queue in self._queues.items():
            self._lines[queue].link = links[region]

    def queue_rule(self, region: str) -> str:
        """No bypass: see the class."""
        return f"NFQUEUE --queue-num {self._queues[region]}"

    def counts(self) -> Mapping[str, Counts]:
        """Counts of the lines, and what the kernel could not hand over."""
        lost = _kernel_drops()
        return {
            region: Counts(
                self._lines[queue].packets + lost.get(queue, 0),
                self._lines[queue].shaped_drops + lost.get(queue, 0),
            )
            for region, queue in self._queues.items()
        }

    def stop(self) -> None:
        """Drops what is on the way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._socket is not None:
            self._socket.close()

    def _run(self) -> None:
        try:
            self._serve()
        except Exception:
            self._failed()
            raise

    def _serve(self) -> None:
        assert self._socket is not None
        _be_punctual()
        queues = self._socket
        lines = self._lines
        while not self._stopping.is_set():
            select.select([queues], [], [], self._wait_s())
            verdicts = self._admit(queues)
            now_ns = time.monotonic_ns()
            for queue, line in lines.items():
                last = line.release(now_ns)
                if last is not None:
                    verdicts.append(wire.accept_up_to(queue, last))
            if verdicts:
                queues.send(b"".join(verdicts))

    def _wait_s(self) -> float:
        dues = [due for line in self._lines.values() if (due := line.next_due_ns()) is not None]
        if not dues:
            return _IDLE_S
        return min(_IDLE_S, max(0.0, (min(dues) - time.monotonic_ns()) / 1e9))

    def _admit(self, queues: socket.socket) -> list[bytes]:
        """Takes the packets that are there, up to a batch; returns the verdicts that need not wait."""
        verdicts: list[bytes] = []
        for _ in range(_BATCH):
            try:
                data = queues.recv(4_096)
            except BlockingIOError:
                break
            now_ns = time.monotonic_ns()
            for kind, body in wire.messages(data):
                packet = wire.packet(body) if kind == wire.PACKET else None
                if packet is None:
                    continue
                fate = self._lines[packet.queue].admit(now_ns, packet.number, packet.length)
                if fate is not Fate.HELD:
                    value = wire.ACCEPT if fate is Fate.PASSES_AT_ONCE else wire.DROP
                    verdicts.append(wire.verdict(packet.queue, packet.number, value))
        return verdicts


def require_queues() -> None:
    """Raises: RouterError where this network namespace has no netfilter queues."""
    _open([_FIRST_QUEUE]).close()


def _be_punctual() -> None:
    """Asks the kernel to wake this thread on time, and before others that wait for a core; it may decline."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
    libc.syscall(_SYS_SCHED_SETATTR, 0, _SCHED_ATTR, 0)


def _open(queues: Iterable[int]) -> socket.socket:
    try:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
    except OSError as error:
        raise RouterError(f"no netfilter sockets here: {error}", field="shaper") from error
    opened.bind((0, 0))
    opened.settimeout(2.0)
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
    except PermissionError:  # in a user namespace of its own
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    opened.setsockopt(_SOL_NETLINK, _NETLINK_NO_ENOBUFS, 1)
    for queue in queues:
        for request in (
            wire.bind(queue),
            wire.copy_headers(queue),
            wire.limit(queue, MAX_HELD),
            wire.whole_segments(queue),
        ):
            _acknowledged(opened, request, queue)
    opened.setblocking(False)
    return opened


def _acknowledged(opened: socket.socket, request: bytes, queue: int) -> None:
    try:
        opened.send(request)
        answers = (body for kind, body in wire.messages(opened.recv(4_096)) if kind == wire.ERROR)
        code = wire.error_code(next(answers))
    except (OSError, StopIteration) as error:
        raise RouterError(
            f"the kernel does not answer for netfilter queue {queue}", field="shaper"
        ) from error
    if code:
        raise RouterError(
            f"cannot take netfilter queue {queue}: {os.strerror(code)}; the router needs NET_ADMIN",
            field="shaper",
        )


def _kernel_drops() -> dict[int, int]:
    """By queue: packets that found the queue or the socket full."""
    if not _KERNEL_COUNTS.exists():
        return {}
    rows = [line.split() for line in _KERNEL_COUNTS.read_text("ascii").splitlines()]
    return {int(row[0]): int(row[5]) + int(row[6]) for row in rows}
