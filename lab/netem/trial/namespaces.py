"""Three regions as network namespaces: a host and a router each, and a switch between the routers.

    host-us - router-us \\
    host-eu - router-eu  - switch
    host-asia - router-asia /

The addresses are those of the compose lab, in namespaces that nothing else is in.
"""

import contextlib
import ctypes
import os
import secrets
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from lab.netem.settings import RegionNetwork
from lab.netem.shell import call, succeeds

REGIONS: Final = {
    region: RegionNetwork(
        IPv4Network(f"10.214.{number}.0/24"),
        IPv4Address(f"10.214.{number}.2"),
        IPv4Address(f"10.214.100.{10 + number}"),
    )
    for number, region in enumerate(("us", "eu", "asia"), 1)
}
_HOST: Final = 10
_CLONE_NEWNET: Final = 0x40000000


class Namespaces:
    """Creates the namespaces on entry, with every device up; `close` deletes them. Needs root."""

    def __init__(self) -> None:
        self._prefix = f"kvcwan-{secrets.token_hex(3)}"
        self._made: list[str] = []

    def create(self) -> None:
        """Raises: RouterError."""
        switch = self._add("switch")
        call("ip", "-n", switch, "link", "add", "wan", "type", "bridge")
        call("ip", "-n", switch, "link", "set", "wan", "up")
        for region, network in REGIONS.items():
            host, router = self._add(f"host-{region}"), self._add(f"router-{region}")
            self._join(host, "eth0", router, "region")
            self._join(router, "wan", switch, region)
            call("ip", "-n", switch, "link", "set", region, "master", "wan")
            call("ip", "-n", host, "addr", "add", f"{self.host(region)}/24", "dev", "eth0")
            call("ip", "-n", host, "route", "add", "default", "via", str(network.gateway))
            call("ip", "-n", router, "addr", "add", f"{network.subnet[3]}/24", "dev", "region")
            call("ip", "-n", router, "addr", "add", f"{network.router}/24", "dev", "wan")

    def close(self) -> None:
        """Deletes what was made."""
        for name in self._made:
            succeeds("ip", "netns", "del", name)

    def host(self, region: str) -> str:
        """The address of a region's host."""
        return str(REGIONS[region].subnet[_HOST])

    def name(self, place: str) -> str:
        """The kernel's name of `host-REGION` or `router-REGION`."""
        return f"{self._prefix}-{place}"

    @contextlib.contextmanager
    def inside(self, place: str) -> Iterator[None]:
        """Sockets that this thread opens are opened there, and stay there."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            away = os.open(Path("/run/netns") / self.name(place), os.O_RDONLY)
            try:
                _enter(away)
            finally:
                os.close(away)
            yield
        finally:
            _enter(home)
            os.close(home)

    def _add(self, place: str) -> str:
        name = self.name(place)
        call("ip", "netns", "add", name)
        self._made.append(name)
        call("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def _join(self, one: str, device: str, other: str, other_device: str) -> None:
        peer = ("peer", "name", other_device, "netns", other)
        call("ip", "-n", one, "link", "add", device, "type", "veth", *peer)
        call("ip", "-n", one, "link", "set", device, "up")
        call("ip", "-n", other, "link", "set", other_device, "up")


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")
