"""From a user's country to the nearest region of a fleet (paper 2.1)."""

import random
from collections.abc import Mapping, Sequence
from typing import Final

from simulator.fleets.places import PLACES, distance_km
from simulator.workloads.country_places import COUNTRIES
from simulator.workloads.draw import Draw

WILDCHAT_SHARES: Final[Mapping[str, float]] = {
    "CN": 24.8,
    "US": 11.7,
    "RU": 9.7,
    "CA": 3.6,
    "HK": 3.4,
    "FR": 3.2,
    "IN": 3.0,
    "GB": 2.5,
    "DE": 2.4,
    "NZ": 2.1,
    "SG": 2.0,
    "JP": 1.9,
    "ES": 1.9,
    "IT": 1.8,
    "TR": 1.7,
}
"""Percent of WildChat's conversations: the first six as measured on a subset of 9,930, and so the others. The
24 % of all other countries are left out."""


class ByCountry:
    """Draws countries by their shares and gives the region nearest to each."""

    def __init__(self, shares: Mapping[str, float], regions: Sequence[int], stream: random.Random) -> None:
        self._draw = Draw(list(shares.values()), stream)
        self._regions = regions

    def next(self) -> int:
        """Draw the index of a region."""
        return self._regions[self._draw.next()]


def nearest_regions(countries: Sequence[str], regions: Sequence[str]) -> list[int] | None:
    """Return for each country the index of the region nearest to it; None when a region's place is not
    known."""
    if any(region not in PLACES for region in regions):
        return None
    places = [PLACES[region] for region in regions]
    return [
        min(range(len(places)), key=lambda region: distance_km(COUNTRIES[country], places[region]))
        for country in countries
    ]
