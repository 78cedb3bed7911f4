"""What a router tells of itself: to `netem show`, and to Prometheus."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from kvcompass.wan.link import Link
from kvcompass.wan.profile import Pair


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction between two regions. What only the router at its origin knows is None at the other."""

    partitioned: bool
    partition_drops: int
    link: Link | None = None
    rtt_ms: float | None = None
    packets: int | None = None
    shaped_drops: int | None = None

    @property
    def one_way_ms(self) -> float | None:
        """The delay that is asked for."""
        return None if self.link is None else self.link.one_way_ms


@dataclass(frozen=True, slots=True)
class Report:
    """The router of `region` now."""

    region: str
    shaper: str
    profile: str
    source: str
    directions: Mapping[Pair, Direction]

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "region": self.region,
            "shaper": self.shaper,
            "profile": self.profile,
            "source": self.source,
            "directions": [
                {"origin": origin, "destination": destination, **dataclasses.asdict(direction)}
                for (origin, destination), direction in self.directions.items()
            ],
        }
