"""Every wire and every listener of a lab's wide-area network, in one process."""

import asyncio
import functools
import random
from collections.abc import Iterable, Mapping

from kvcompass.errors import KVCompassError
from kvcompass.wan import Pair, changed_link
from lab.relay.connection import Connection, reset
from lab.relay.settings import LinkSettings, WireSettings
from lab.relay.wire import Wire, check_carried
from services.runtime.addresses import split_address

MAX_CONNECTIONS = 4_096
"""Connections open at once; more are reset and counted."""


class UnknownWireError(KVCompassError):
    """No wire joins the two regions."""


class Network:
    """Listens for every link and carries its connections over the two wires of its region pair.

    Raises: WanError when a wire is to do what cannot be done to connections; UnknownWireError.
    """

    def __init__(
        self, wires: Iterable[WireSettings], links: Iterable[LinkSettings], random_seed: int
    ) -> None:
        rng = random.Random(random_seed)
        self._wires: dict[Pair, Wire] = {}
        for wire in wires:
            figures = wire.link()
            check_carried(figures, f"wires.{wire.origin}.{wire.destination}")
            self._wires[wire.origin, wire.destination] = Wire(figures, rng)
        self._links = tuple(links)
        for link in self._links:
            self._wire(link.origin, link.destination)
            self._wire(link.destination, link.origin)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self.refused_connections = 0

    async def start(self) -> None:
        """Binds every link. Errors: OSError when an address is taken."""
        loop = asyncio.get_running_loop()
        for link in self._links:
            host, port = split_address(link.listen)
            accept = functools.partial(self._accept, link)
            self._servers.append(await loop.create_server(accept, host, port, backlog=256))

    async def stop(self) -> None:
        """Stops listening and resets what is open."""
        for server in self._servers:
            server.close()
        for connection in tuple(self._connections):
            connection.close()
        await asyncio.sleep(0)

    def cut(self, origin: str, destination: str) -> None:
        """Starts a partition of one direction. Errors: UnknownWireError."""
        self._wire(origin, destination).cut()

    def heal(self, origin: str, destination: str) -> None:
        """Ends a partition of one direction. Errors: UnknownWireError."""
        self._wire(origin, destination).heal()

    def change(self, origin: str, destination: str, values: Mapping[str, object]) -> None:
        """Replaces figures of one direction. Errors: UnknownWireError, WanError."""
        wire = self._wire(origin, destination)
        where = f"{origin}.{destination}"
        link = changed_link(wire.link, values, where)
        check_carried(link, where)
        wire.change(link)

    def state(self) -> Mapping[str, object]:
        """What the network carries now, as plain values."""
        return {
            "connections": len(self._connections),
            "refused_connections": self.refused_connections,
            "wires": [
                {
                    "origin": origin,
                    "destination": destination,
                    "one_way_ms": wire.link.one_way_ms,
                    "jitter_ms": wire.link.jitter_ms,
                    "rate": wire.link.rate,
                    "partition": wire.partitioned,
                    "carried_bytes": wire.carried_bytes,
                }
                for (origin, destination), wire in self._wires.items()
            ],
        }

    def _wire(self, origin: str, destination: str) -> Wire:
        wire = self._wires.get((origin, destination))
        if wire is None:
            raise UnknownWireError(f"no wire from {origin!r} to {destination!r}", field="wires")
        return wire

    def _accept(self, link: LinkSettings) -> asyncio.Protocol:
        if len(self._connections) >= MAX_CONNECTIONS:
            self.refused_connections += 1
            return _Refuse()
        host, port = split_address(link.target)
        out = self._wire(link.origin, link.destination)
        back = self._wire(link.destination, link.origin)
        return Connection(host, port, out, back, self._connections).near


class _Refuse(asyncio.Protocol):
    """Resets a connection beyond the bound."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            reset(transport)
