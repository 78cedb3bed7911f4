"""Loopback ports for tests: each is given once, never to two test processes that run side by side."""

import os
import random
import socket

from lab.ports import LoopbackPorts

# Below the ports that the system gives to whoever asks for any (32,768 and up).
_LOWEST, _END = 10_000, 32_000
_OF_A_LAB = 200
"""Three regions take 57, and some workers join them."""


class PortShare:
    """Goes round the share of the range that belongs to this test process."""

    def __init__(self, process: int, processes: int) -> None:
        self._share = (_END - _LOWEST) // processes
        self._first = _LOWEST + process * self._share
        self._at = os.getpid() % self._share

    def row(self, count: int) -> int:
        """The first of so many ports in a row that nobody has."""
        for _ in range(self._share):
            if self._at + count > self._share:
                self._at = 0
            first = self._first + self._at
            taken = [port for port in range(first, first + count) if not _is_free(port)]
            self._at = (taken[-1] - self._first + 1) if taken else self._at + count
            if not taken:
                return first
        raise OSError(f"no {count} free ports in a row from {self._first}")


def _is_free(port: int) -> bool:
    with socket.socket() as trial:
        try:
            trial.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


_PORTS = PortShare(
    int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")),
    int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")),
)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody has and no other test is given."""
    return _PORTS.row(count)


def free_address() -> str:
    """An address that nobody has and no other test is given."""
    return f"127.0.0.1:{free_ports(1)}"


def lab_ports() -> LoopbackPorts:
    """For a lab of one's own: ports that nobody has and no other test, and no other lab of it, is given."""
    first = free_ports(_OF_A_LAB)
    return LoopbackPorts(random.Random(first), range(first, first + _OF_A_LAB))
