"""The two ways to shape traffic, and how one is chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kvcompass.wan.link import Link
from lab.netem.shell import succeeds


@dataclass(frozen=True, slots=True)
class Counts:
    """Packets toward one region since the router started."""

    packets: int
    shaped_drops: int


class Shaper(Protocol):
    """Delays and loses what goes to other regions; cuts and second copies are `Netfilter`'s business."""

    name: str
    """One of `names.SHAPERS`."""

    def start(self, links: Mapping[str, Link]) -> None:
        """Shapes from now on. Raises: RouterError."""

    def change(self, links: Mapping[str, Link]) -> None:
        """Replaces the links; packets on their way keep their times."""

    def queue_rule(self, region: str) -> str | None:
        """The netfilter target that takes packets to `region`; None: it needs no rule."""

    def counts(self) -> Mapping[str, Counts]:
        """By destination."""

    def stop(self) -> None:
        """Stops shaping; nothing of it remains."""


def kernel_has_netem() -> bool:
    """Tries it on the loopback device of this network namespace."""
    if not succeeds("tc", "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1us"):
        return False
    succeeds("tc", "qdisc", "del", "dev", "lo", "root")
    return True
