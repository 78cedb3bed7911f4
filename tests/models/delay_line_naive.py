"""A link as the vocabulary defines it, packet by packet, with nothing clever: the twin of `DelayLine`."""

from dataclasses import dataclass

from kvcompass.wan import Link


@dataclass(frozen=True, slots=True)
class Sent:
    """A packet: when it leaves, and its bytes."""

    at_ns: int
    length: int


def arrivals_ns(link: Link, packets: list[Sent]) -> list[int]:
    """When each packet arrives over a link without chance: travel time, then order, then rate."""
    arrived: list[int] = []
    for packet in packets:
        arrives = packet.at_ns + round(link.one_way_ms * 1e6)
        if arrived:
            arrives = max(arrives, arrived[-1])
        if link.rate is not None:
            arrives += round(packet.length * 8 / link.rate * 1e3)
        arrived.append(arrives)
    return arrived
