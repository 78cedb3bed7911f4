"""One-way latencies between regions: measured where AWS's were, else by distance."""

from collections.abc import Sequence
from typing import Final, Literal

from simulator.fleets.places import CLOUD_REGIONS, PLACES, distance_km

WanReading = Literal["one_way", "round_trip"]
"""What the paper's "12-150 ms" is taken for. CloudPing's round trips over its 8 regions are 17.8 to 266 ms,
so `one_way` is what was measured, and what the paper's Appendix A says (9 to 144 ms one way). `round_trip`
takes its section 5.3 by the letter, "RTT": every latency is half of that."""

LOCAL_MS: Final = 0.5
"""One way within a region, between edge and worker."""

ROUND_TRIPS_MS: Final[tuple[tuple[float, ...], ...]] = (
    (),
    (197.5,),
    (92.8, 193.8),
    (149.3, 51.8, 227.4),
    (218.9, 37.4, 160.9, 70.6),
    (77.6, 206.7, 17.8, 211.7, 172.5),
    (178.6, 39.0, 231.5, 36.2, 73.9, 242.3),
    (199.7, 128.1, 251.6, 106.9, 94.7, 266.1, 145.4),
    (64.1, 145.1, 142.5, 98.3, 160.5, 128.8, 123.3, 141.0),
    (69.6, 229.7, 27.1, 201.0, 182.2, 13.7, 231.9, 255.6, 118.3),
    (191.0, 97.5, 129.0, 133.8, 63.6, 117.4, 134.2, 154.4, 221.6, 125.7),
    (115.3, 309.0, 204.4, 257.7, 327.4, 186.9, 288.3, 312.1, 174.7, 178.2, 301.4),
    (16.3, 196.7, 92.9, 145.2, 214.6, 79.1, 175.3, 198.2, 60.6, 69.1, 192.1, 125.5),
    (101.7, 184.4, 12.5, 218.1, 151.6, 27.3, 222.0, 242.5, 151.4, 35.9, 109.8, 213.3, 101.8),
    (161.4, 131.5, 86.3, 174.8, 98.1, 88.6, 167.2, 188.6, 217.4, 97.9, 38.4, 273.0, 162.5, 113.2),
    (226.9, 354.7, 155.3, 357.3, 317.1, 150.1, 386.7, 409.2, 274.2, 159.3, 271.8, 338.3, 224.1, 187.8, 248.9),
)
"""Round trips in ms between the regions of `CLOUD_REGIONS` and those before them, in its order: medians of
the year to 2025-05-29 as CloudPing.co measured them, mean of both directions, to a tenth."""

DISTANCE_MS: Final = 21.9
DISTANCE_MS_PER_KM: Final = 0.0160
"""Round trip by distance, where nothing was measured: a line through the pairs above (least squares)."""


def round_trip_ms(a: str, b: str) -> float:
    """Between two different regions of `PLACES`."""
    order = list(CLOUD_REGIONS)
    if a in CLOUD_REGIONS and b in CLOUD_REGIONS:
        first, second = sorted((order.index(a), order.index(b)))
        return ROUND_TRIPS_MS[second][first]
    return DISTANCE_MS + DISTANCE_MS_PER_KM * distance_km(PLACES[a], PLACES[b])


def wan_matrix(regions: Sequence[str], reading: WanReading) -> tuple[tuple[float, ...], ...]:
    """Return `wan_ms[o][r]`, one way in ms, of regions of `PLACES`."""
    share = {"one_way": 0.5, "round_trip": 0.25}[reading]
    return tuple(
        tuple(LOCAL_MS if a == b else round(share * round_trip_ms(a, b), 2) for b in regions) for a in regions
    )
