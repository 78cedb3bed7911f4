"""The `tc` commands that give a device one class, one netem queue and one filter a destination region."""

import math
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Final

from kvcompass.wan.link import Link
from lab.netem.delay_line import MAX_HELD, RATE_QUEUE_MS

Command = tuple[str, ...]

_UNLIMITED: Final = "10gbit"
_LOCAL_CLASS: Final = "1:1"
_FIRST_CLASS: Final = 0x10
_PACKET_BYTES: Final = 1_500
_FEWEST_PACKETS: Final = 100
_LEAST_MS: Final = 0.001
"""tc takes neither a distribution nor a reordering of no time, and less than some ns for none."""


def class_number(index: int) -> str:
    """The number of the class, and of the queue below it, of the destination at `index`."""
    return f"{_FIRST_CLASS + index:x}"


def setup(device: str, subnets: Mapping[str, IPv4Network], links: Mapping[str, Link]) -> Iterator[Command]:
    """Commands for a device without a root qdisc; both mappings are by destination."""
    yield ("tc", "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1", "r2q", "1000")
    yield from _class(device, _LOCAL_CLASS)
    # A container's device has no transmit queue, and a default leaf would take its length from that.
    yield ("tc", "qdisc", "add", "dev", device, "parent", _LOCAL_CLASS, "pfifo", "limit", "1000")
    for index, (region, subnet) in enumerate(subnets.items()):
        number = class_number(index)
        yield from _class(device, f"1:{number}")
        yield _netem("add", device, number, links[region])
        place = ("dev", device, "parent", "1:", "protocol", "ip", "prio", "1")
        match = ("u32", "match", "ip", "dst", str(subnet), "flowid", f"1:{number}")
        yield ("tc", "filter", "add", *place, *match)


def change(device: str, index: int, link: Link) -> Command:
    """The command that replaces one link of a device that was set up."""
    return _netem("change", device, class_number(index), link)


def _class(device: str, name: str) -> Iterator[Command]:
    rate = ("htb", "rate", _UNLIMITED, "ceil", _UNLIMITED, "quantum", "60000")
    yield ("tc", "class", "add", "dev", device, "parent", "1:", "classid", name, *rate)


def _netem(verb: str, device: str, number: str, link: Link) -> Command:
    place = ("tc", "qdisc", verb, "dev", device, "parent", f"1:{number}", "handle", f"{number}:", "netem")
    return (*place, *_figures(link))


def _figures(link: Link) -> Iterator[str]:
    spread = link.jitter_ms > 0.0
    travel_ms = max(link.one_way_ms, _LEAST_MS) if spread or link.reorder > 0.0 else link.one_way_ms
    yield from ("limit", str(_limit(link)), "delay", f"{travel_ms:.6g}ms")
    if spread:
        yield from (f"{max(link.jitter_ms, _LEAST_MS):.6g}ms", "distribution", "normal")
    yield from ("loss", "random", _percent(link.loss))
    if link.reorder > 0.0:
        yield from ("reorder", _percent(link.reorder))
    # Netem keeps the order under jitter only where a rate is set, so there always is one.
    yield from ("rate", _UNLIMITED if link.rate is None else f"{link.rate:.6g}mbit")


def _percent(share: float) -> str:
    return f"{100.0 * share:.6g}%"


def _limit(link: Link) -> int:
    """Packets that are on the way and wait: all of them without a rate, else what the rate fits."""
    if link.rate is None:
        return MAX_HELD
    held_ms = link.one_way_ms + 4.0 * link.jitter_ms + RATE_QUEUE_MS
    packets = math.ceil(link.rate * 1_000.0 / 8.0 * held_ms / _PACKET_BYTES)
    return min(MAX_HELD, max(_FEWEST_PACKETS, packets))
