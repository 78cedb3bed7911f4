"""Round trips between regions: published measurements, the paper's testbed, or a file of one's own."""

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

EIGHT = {
    "us-east-1": (38.9, -77.4),
    "ap-east-1": (22.3, 114.2),
    "eu-central-1": (50.1, 8.7),
    "ap-northeast-1": (35.7, 139.7),
    "ap-southeast-1": (1.4, 103.8),
    "eu-west-2": (51.5, -0.1),
    "ap-northeast-2": (37.6, 127.0),
    "ap-southeast-2": (-33.9, 151.2),
}
"""The regions nearest to the paper's US, CN, DE, JP, SG, GB, KR and AU; latitude and longitude."""
SIXTEEN = (
    *EIGHT,
    *(
        "af-south-1",
        "ap-south-1",
        "ca-central-1",
        "eu-south-1",
        "eu-west-1",
        "me-south-1",
        "sa-east-1",
        "us-west-2",
    ),
)


@dataclass(frozen=True, slots=True)
class Network:
    """Regions and the time there and back between them."""

    name: str
    source: str
    regions: tuple[str, ...]
    round_trip_ms: NDArray[np.float64]
    """float64[R, R], symmetric: the mean of both directions' measurements. The diagonal is not read."""

    def pairs(self) -> list[tuple[int, int]]:
        """Ordered pairs of different regions."""
        count = len(self.regions)
        return [(o, r) for o in range(count) for r in range(count) if o != r]

    def halved(self) -> "Network":
        """The other reading of the paper's "12 to 150 ms": what is a round trip here, it may call one way."""
        return Network(f"{self.name}, halved", self.source, self.regions, self.round_trip_ms / 2)


def cloudping(file: Path, count: int) -> Network:
    """AWS medians of a year (cloudping.co): the paper's 8 regions, 16, or all that were measured (32)."""
    table = json.loads(file.read_text("utf-8"))["data"]
    regions = {8: tuple(EIGHT), 16: SIXTEEN}.get(count, tuple(sorted(table)))
    measured = np.array([[table[origin][region] for region in regions] for origin in regions])
    return Network(
        f"cloudping {len(regions)}", "CloudPing, AWS medians of a year", regions, _symmetric(measured)
    )


def paper_testbed() -> Network:
    """The paper's three sites (5.2): one way US-EU 160 ms, US-Asia 126, EU-Asia 149."""
    one_way = np.array([[0.0, 160, 126], [160, 0, 149], [126, 149, 0]])
    return Network("testbed 3", "the paper's section 5.2", ("us", "eu", "asia"), 2 * one_way)


def by_distance(count: int = 8) -> Network:
    """Regions by great circle: light in fibre on a way half as long again, and 4 ms.

    The paper's 8, then places at random over the inhabited latitudes.
    """
    rng = np.random.default_rng(1)
    places = dict(EIGHT) | {
        f"place-{i}": (rng.uniform(-40, 60), rng.uniform(-180, 180)) for i in range(8, count)
    }
    chosen = dict(list(places.items())[:count])
    trips = np.array(
        [[4 + 2 * 1.5 * _kilometres(a, b) / 200 for b in chosen.values()] for a in chosen.values()]
    )
    return Network(f"distance {count}", "synthetic, from distances", tuple(chosen), trips)


def from_file(file: Path) -> Network:
    """A CSV of round trips in ms: region names in the first row and column; empty cells take the other way.

    Regions without a measurement in either direction of some pair are left out.
    """
    with file.open(encoding="utf-8", newline="") as lines:
        head, *rows = list(csv.reader(lines))
    cells = {
        (row[0], name): cell for row in rows for name, cell in zip(head[1:], row[1:], strict=False) if cell
    }
    names = [row[0] for row in rows]
    known = np.array([[float(cells.get((o, r), cells.get((r, o), "nan"))) for r in names] for o in names])
    np.fill_diagonal(known, 0.0)
    while np.isnan(known).any():
        worst = int(np.isnan(known).sum(axis=1).argmax())
        known = np.delete(np.delete(known, worst, 0), worst, 1)
        del names[worst]
    if len(names) < 2:
        raise SystemExit(f"{file}: fewer than two regions with a round trip to all others")
    return Network(f"{file.stem} {len(names)}", file.name, tuple(names), _symmetric(known))


def _symmetric(trips: NDArray[np.float64]) -> NDArray[np.float64]:
    return (trips + trips.T) / 2


def _kilometres(a: tuple[float, float], b: tuple[float, float]) -> float:
    (north_a, east_a), (north_b, east_b) = (tuple(map(math.radians, place)) for place in (a, b))
    half = math.sin((north_b - north_a) / 2) ** 2
    half += math.cos(north_a) * math.cos(north_b) * math.sin((east_b - east_a) / 2) ** 2
    return 2 * 6_371 * math.asin(math.sqrt(half))
