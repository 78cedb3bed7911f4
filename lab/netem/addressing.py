"""The router's place in the network: its devices, the gateway's address and the ways to other regions."""

import fcntl
import json
import socket
import struct
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from lab.netem.errors import RouterError
from lab.netem.log import say
from lab.netem.settings import RouterSettings
from lab.netem.shell import call, succeeds

_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")
_SIOCGIFHWADDR: Final = 0x8927
_ETH_P_ARP: Final = 0x0806
_BROADCAST: Final = b"\xff" * 6


class Addressing:
    """What the router adds to its network namespace, and takes away again. Raises: RouterError."""

    def __init__(self, settings: RouterSettings) -> None:
        self._settings = settings
        self.wan_device = _device(IPv4Network(f"{settings.own.router}/32"), "the network between the regions")
        self.region_device = _device(settings.own.subnet, f"the network of {settings.region}")
        self._gateway = f"{settings.own.gateway}/{settings.own.subnet.prefixlen}"

    def add(self) -> None:
        """Takes the gateway's address, tells the neighbours and adds the routes. Harmless when repeated."""
        _require_forwarding()
        call("ip", "addr", "replace", self._gateway, "dev", self.region_device)
        for region in self._settings.others.values():
            way = ("via", str(region.router), "dev", self.wan_device)
            call("ip", "route", "replace", str(region.subnet), *way)
        _announce(self.region_device, self._settings.own.gateway)

    def remove(self) -> None:
        """Takes back what `add` did."""
        for region in self._settings.others.values():
            succeeds("ip", "route", "del", str(region.subnet), "via", str(region.router))
        succeeds("ip", "addr", "del", self._gateway, "dev", self.region_device)


def _device(network: IPv4Network, what: str) -> str:
    """The device with an address in `network`."""
    for link in json.loads(call("ip", "-j", "-4", "addr", "show")):
        if any(IPv4Address(entry["local"]) in network for entry in link.get("addr_info", ())):
            name: str = link["ifname"]
            return name
    raise RouterError(f"no address in {network}: attach the router to {what}", field="regions")


def _require_forwarding() -> None:
    if _FORWARDING.read_text("ascii").strip() == "1":
        return
    try:
        _FORWARDING.write_text("1", "ascii")
    except OSError as error:
        raise RouterError("set the sysctl net.ipv4.ip_forward = 1", field="net.ipv4.ip_forward") from error


def _announce(device: str, address: IPv4Address) -> None:
    """A gratuitous ARP request: who knew another station under the address learns the new one."""
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_ARP)) as sender:
            sender.bind((device, 0))
            request = struct.pack("256s", device.encode())
            station = fcntl.ioctl(sender.fileno(), _SIOCGIFHWADDR, request)[18:24]
            sender.send(gratuitous_arp(station, address))
    except PermissionError:
        say("not announced", address=str(address), why="needs NET_RAW; neighbours find out")


def gratuitous_arp(station: bytes, address: IPv4Address) -> bytes:
    """The Ethernet frame that says that `address` is at `station` (RFC 5227, section 2.3)."""
    ethernet = _BROADCAST + station + struct.pack(">H", _ETH_P_ARP)
    request = struct.pack(">HHBBH", 1, 0x0800, 6, 4, 1)
    return ethernet + request + station + address.packed + bytes(6) + address.packed
