"""A wide-area network: its regions and the link of every ordered pair."""

from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.wan.link import Link

Pair = tuple[str, str]
"""(origin, destination), two different regions."""


@dataclass(frozen=True, slots=True)
class WanProfile:
    """Figures of a network and where they are from."""

    name: str
    source: str
    """Who measured the figures, and when."""
    regions: tuple[str, ...]
    links: Mapping[Pair, Link]
    """One for each ordered pair of different regions."""

    def link(self, origin: str, destination: str) -> Link:
        """The link from one region to another one; both must be of this profile."""
        return self.links[origin, destination]

    def leaving(self, origin: str) -> dict[str, Link]:
        """Links from a region, by destination, in the order of `regions`."""
        return {region: self.links[origin, region] for region in self.regions if region != origin}
