"""TOML text -> WanProfile, or the first fault of it.

name = "two"
source = "made up, 2026"
regions = ["us", "eu"]

[[link]]
between = ["us", "eu"]      # both directions; or origin = "us", destination = "eu" for one
one_way_ms = 40
"""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kvcompass.spelling import unknown_key
from kvcompass.wan.errors import WanError
from kvcompass.wan.link import LINK_FIELDS, Link, read_link
from kvcompass.wan.profile import Pair, WanProfile

MAX_REGIONS: Final = 16

_KEYS: Final = ("name", "source", "regions", "link")
_ENDS: Final = ("between", "origin", "destination")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def parse_profile(text: str) -> WanProfile:
    """Return the profile that a file describes.

    Raises:
        WanError: Naming the field and the fix. Every ordered pair of regions needs exactly one link.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise WanError(f"not TOML: {error}", field="profile") from error
    for name in raw:
        if name not in _KEYS:
            raise WanError(unknown_key(name, _KEYS), field=name)
    regions = _regions(raw)
    links: dict[Pair, Link] = {}
    for where, entry in _entries(raw):
        pairs = _pairs(entry, regions, where)
        link = read_link({name: value for name, value in entry.items() if name not in _ENDS}, where)
        for pair in pairs:
            if pair in links:
                raise WanError(f"{pair[0]} to {pair[1]} has a link already; delete one", field=where)
            links[pair] = link
    for origin, destination in itertools.permutations(regions, 2):
        if (origin, destination) not in links:
            raise WanError(f"no link from {origin} to {destination}; add one", field="link")
    return WanProfile(_text(raw, "name", _NAME), _text(raw, "source"), regions, links)


def _text(raw: Mapping[str, Any], name: str, pattern: re.Pattern[str] | None = None) -> str:
    value = raw.get(name)
    if not isinstance(value, str) or not value:
        raise WanError("missing; give a text", field=name)
    if pattern is not None and not pattern.fullmatch(value):
        raise WanError(f"{value!r}: use up to 63 letters, digits, '.', '_' and '-'", field=name)
    return value


def _regions(raw: Mapping[str, Any]) -> tuple[str, ...]:
    regions = raw.get("regions")
    if not isinstance(regions, list) or not 2 <= len(regions) <= MAX_REGIONS:
        raise WanError(f"give an array of 2 to {MAX_REGIONS} region names", field="regions")
    for region in regions:
        if not isinstance(region, str) or not _NAME.fullmatch(region):
            raise WanError(f"{region!r}: use letters, digits, '.', '_' and '-'", field="regions")
        if regions.count(region) > 1:
            raise WanError(f"{region!r} is there twice; delete one", field="regions")
    return tuple(regions)


def _entries(raw: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    entries = raw.get("link", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise WanError("write each link under [[link]]", field="link")
    for index, entry in enumerate(entries):
        where = f"link[{index}]"
        for name in entry:
            if name not in _ENDS and name not in LINK_FIELDS:
                raise WanError(unknown_key(name, (*_ENDS, *LINK_FIELDS)), field=f"{where}.{name}")
        yield where, entry


def _pairs(entry: Mapping[str, Any], regions: tuple[str, ...], where: str) -> tuple[Pair, ...]:
    one_way = "origin" in entry or "destination" in entry
    if one_way == ("between" in entry):
        raise WanError("give either between = [a, b], or origin and destination", field=where)
    ends = [entry.get("origin"), entry.get("destination")] if one_way else entry["between"]
    if not isinstance(ends, list) or len(ends) != 2 or ends[0] == ends[1]:
        raise WanError("a link joins two different regions", field=where)
    for end in ends:
        if end not in regions:
            known = ", ".join(regions)
            raise WanError(f"{end!r} is not among the regions ({known})", field=where)
    first, second = ends
    return ((first, second),) if one_way else ((first, second), (second, first))
