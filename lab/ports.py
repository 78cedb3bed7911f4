"""Free loopback ports, taken outside the range from which the kernel picks ports of outgoing connections."""

import random
import socket
from pathlib import Path

from kvcompass.errors import KVCompassError

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 12_000


class NoFreePortError(KVCompassError):
    """Too few ports are free on loopback."""


class LoopbackPorts:
    """Gives out ports that were free when asked for, each once."""

    def __init__(self, rng: random.Random, ports: range | None = None) -> None:
        """`ports`: which it may give; all but the kernel's own where nobody says."""
        self._rng = rng
        self._ports = range(_LOWEST, _first_ephemeral_port()) if ports is None else ports
        self._given: set[int] = set()

    def address(self) -> str:
        """A fresh `127.0.0.1:port`. Errors: NoFreePortError after 1,000 tries."""
        for _ in range(1_000):
            port = self._rng.choice(self._ports)
            if port not in self._given and _is_free(port):
                self._given.add(port)
                return f"127.0.0.1:{port}"
        first, end = self._ports.start, self._ports.stop
        raise NoFreePortError(f"no free port between {first} and {end} on 127.0.0.1", field="ports")


def _first_ephemeral_port() -> int:
    try:
        first = int(_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > _LOWEST + 1_000 else 65_536


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
