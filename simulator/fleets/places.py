"""Where regions are: the sites of cloud regions and of large cities, to whole tenths of a degree."""

from dataclasses import dataclass
from math import asin, cos, radians, sin, sqrt
from typing import Final

_EARTH_RADIUS_KM: Final = 6_371.0


@dataclass(frozen=True, slots=True)
class Place:
    """A point on the earth, in degrees north and east."""

    north: float
    east: float


CLOUD_REGIONS: Final[dict[str, Place]] = {
    "us-east-1": Place(39.0, -77.5),
    "ap-east-1": Place(22.3, 114.3),
    "eu-central-1": Place(50.1, 8.6),
    "ap-northeast-1": Place(35.6, 139.7),
    "ap-southeast-1": Place(1.3, 103.7),
    "eu-west-2": Place(51.5, -0.1),
    "ap-northeast-2": Place(37.6, 126.9),
    "ap-southeast-2": Place(-33.9, 151.2),
    "us-west-2": Place(45.9, -119.3),
    "eu-west-1": Place(53.4, -6.2),
    "ap-south-1": Place(19.2, 73.0),
    "sa-east-1": Place(-23.5, -46.8),
    "ca-central-1": Place(45.5, -73.6),
    "eu-south-1": Place(45.5, 9.1),
    "me-south-1": Place(25.9, 50.3),
    "af-south-1": Place(-33.9, 18.4),
}
"""AWS's names; their places as AWS publishes them (city or state). The first eight are nearest to the paper's
US, CN, DE, JP, SG, GB, KR and AU."""

CITIES: Final[dict[str, Place]] = {
    "chicago": Place(41.9, -87.6),
    "dallas": Place(32.8, -96.8),
    "los-angeles": Place(34.1, -118.2),
    "atlanta": Place(33.7, -84.4),
    "denver": Place(39.7, -105.0),
    "miami": Place(25.8, -80.2),
    "toronto": Place(43.7, -79.4),
    "vancouver": Place(49.3, -123.1),
    "calgary": Place(51.0, -114.1),
    "mexico-city": Place(19.4, -99.1),
    "bogota": Place(4.7, -74.1),
    "lima": Place(-12.0, -77.0),
    "santiago": Place(-33.4, -70.7),
    "buenos-aires": Place(-34.6, -58.4),
    "rio-de-janeiro": Place(-22.9, -43.2),
    "paris": Place(48.9, 2.4),
    "madrid": Place(40.4, -3.7),
    "lisbon": Place(38.7, -9.1),
    "amsterdam": Place(52.4, 4.9),
    "zurich": Place(47.4, 8.5),
    "vienna": Place(48.2, 16.4),
    "warsaw": Place(52.2, 21.0),
    "prague": Place(50.1, 14.4),
    "stockholm": Place(59.3, 18.1),
    "helsinki": Place(60.2, 24.9),
    "moscow": Place(55.8, 37.6),
    "kyiv": Place(50.5, 30.5),
    "bucharest": Place(44.4, 26.1),
    "athens": Place(38.0, 23.7),
    "istanbul": Place(41.0, 29.0),
    "tel-aviv": Place(32.1, 34.8),
    "cairo": Place(30.0, 31.2),
    "dubai": Place(25.2, 55.3),
    "riyadh": Place(24.7, 46.7),
    "nairobi": Place(-1.3, 36.8),
    "lagos": Place(6.5, 3.4),
    "casablanca": Place(33.6, -7.6),
    "karachi": Place(24.9, 67.0),
    "delhi": Place(28.6, 77.2),
    "hyderabad": Place(17.4, 78.5),
    "bangkok": Place(13.8, 100.5),
    "jakarta": Place(-6.2, 106.8),
    "manila": Place(14.6, 121.0),
    "taipei": Place(25.0, 121.6),
    "shanghai": Place(31.2, 121.5),
    "beijing": Place(39.9, 116.4),
    "osaka": Place(34.7, 135.5),
    "auckland": Place(-36.8, 174.8),
}
"""Large cities that have none of these regions, to fill fleets of up to 64 regions."""

SITES: Final[dict[str, Place]] = {
    "us": Place(39.0, -77.5),
    "eu": Place(50.1, 8.6),
    "asia": Place(35.6, 139.7),
    "pennsylvania": Place(40.0, -75.2),
    "ohio": Place(40.0, -83.0),
    "new-york": Place(40.7, -74.0),
    "calgary": Place(51.0, -114.1),
}
"""The paper's testbeds, which it names no closer than that. Only for where users are nearest to."""

PLACES: Final[dict[str, Place]] = CLOUD_REGIONS | CITIES | SITES


def distance_km(a: Place, b: Place) -> float:
    """Along the great circle."""
    half = sin(radians(b.north - a.north) / 2) ** 2
    half += cos(radians(a.north)) * cos(radians(b.north)) * sin(radians(b.east - a.east) / 2) ** 2
    return 2 * _EARTH_RADIUS_KM * asin(sqrt(half))
