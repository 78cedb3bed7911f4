"""What a router is to do: the links that leave its region, and what is cut by hand. No I/O."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.wan.errors import WanError
from kvcompass.wan.link import Link, changed_link
from kvcompass.wan.profile import Pair, WanProfile


@dataclass(frozen=True, slots=True)
class WanState:
    """The wide-area network as the router of `region` has it. Every change makes a new one."""

    region: str
    profile: WanProfile
    links: Mapping[str, Link]
    """By destination: the profile's, with what was changed since."""
    cuts: frozenset[Pair] = frozenset()

    @classmethod
    def begin(cls, region: str, profile: WanProfile) -> "WanState":
        """As the profile has it."""
        return cls(region, profile, profile.leaving(region))

    def cut(self, region: str, *, one_way: bool) -> "WanState":
        """Nothing passes to `region`, and nothing from it either unless `one_way`.

        Raises:
            WanError: There is no such region; so for all changes.
        """
        return dataclasses.replace(self, cuts=self.cuts | self._pairs(region, one_way=one_way))

    def heal(self, region: str, *, one_way: bool) -> "WanState":
        """Ends cuts, and the partition of the link to `region` if it has one."""
        cuts = self.cuts - self._pairs(region, one_way=one_way)
        return dataclasses.replace(self.change(region, {"partition": False}), cuts=cuts)

    def change(self, region: str, values: Mapping[str, object]) -> "WanState":
        """Other figures for the link to `region`. Raises: WanError also when one is unknown or bad."""
        self._pairs(region, one_way=True)
        link = changed_link(self.links[region], values, region)
        return dataclasses.replace(self, links={**self.links, region: link})

    def use(self, profile: WanProfile) -> "WanState":
        """The links of another profile with the same regions. What is cut by hand stays cut."""
        return dataclasses.replace(self, profile=profile, links=profile.leaving(self.region))

    def closed(self) -> "WanState":
        """Nothing passes, to and from all regions."""
        pairs = (self._pairs(region, one_way=False) for region in self.links)
        return dataclasses.replace(self, cuts=frozenset().union(*pairs))

    def partitioned(self) -> dict[Pair, bool]:
        """Whether nothing passes, of both directions between the own and every other region."""
        there = {(self.region, other): link.partition for other, link in self.links.items()}
        back = {(other, self.region): False for other in self.links}
        return {pair: cut or pair in self.cuts for pair, cut in (there | back).items()}

    def _pairs(self, region: str, *, one_way: bool) -> frozenset[Pair]:
        if region not in self.links:
            known = ", ".join(self.links)
            raise WanError(f"{region!r} is no region that {self.region} sees: {known}", field="region")
        there, back = (self.region, region), (region, self.region)
        return frozenset({there} if one_way else {there, back})
