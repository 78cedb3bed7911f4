"""Settings of the routers: one file for all of them, each told its region on the command line.

profile = "paper-testbed"         # shipped, or a file that ends in .toml beside this one
shaper = "auto"                   # or "tc", "nfqueue"

[regions.us]
subnet = "10.214.1.0/24"          # the region's own network
gateway = "10.214.1.2"            # the address that its containers route by; the router takes it
router = "10.214.100.11"          # the router's address on the network between the regions
"""

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, NetmaskValueError
from pathlib import Path
from typing import Any, Final

from kvcompass.spelling import unknown_key
from kvcompass.wan.profile import WanProfile
from lab.netem.errors import RouterError
from lab.netem.names import SHAPERS
from lab.wan_profiles import load_profile

METRICS_PORT: Final = 9600
"""/metrics and /healthz, on all addresses."""
CONTROL_PORT: Final = 9601
"""Commands, on 127.0.0.1 only."""
ECHO_PORT: Final = 9602
"""UDP between routers."""

_KEYS: Final = ("profile", "shaper", "random_seed", "regions")
_REGION_KEYS: Final = ("subnet", "gateway", "router")


@dataclass(frozen=True, slots=True)
class RegionNetwork:
    """Where a region is."""

    subnet: IPv4Network
    gateway: IPv4Address
    router: IPv4Address


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What the router of one region needs to know."""

    region: str
    profile: WanProfile
    regions: Mapping[str, RegionNetwork]
    """All regions, the own one among them."""
    directory: Path
    """Of the settings file: other profiles are looked for there."""
    shaper: str = "auto"
    random_seed: int = 0

    @property
    def own(self) -> RegionNetwork:
        """The network of the own region."""
        return self.regions[self.region]

    @property
    def others(self) -> dict[str, RegionNetwork]:
        """Networks of the other regions."""
        return {name: network for name, network in self.regions.items() if name != self.region}


def load_settings(path: Path, region: str) -> RouterSettings:
    """Reads the settings file.

    Raises:
        RouterError: It is missing or faulty; the message names the field and the fix.
        WanError: Its profile is.
    """
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RouterError(f"cannot read settings file {path}: {error}", field="settings") from error
    _refuse_unknown(raw, _KEYS, "")
    shaper = raw.get("shaper", "auto")
    if shaper not in ("auto", *SHAPERS):
        raise _fault("shaper", f"{shaper!r} is none of auto, {', '.join(SHAPERS)}")
    seed = raw.get("random_seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise _fault("random_seed", f"{seed!r} is not an integer")
    name = raw.get("profile")
    if not isinstance(name, str):
        raise _fault("profile", "missing; name a shipped profile or a .toml file")
    regions = _regions(raw.get("regions"))
    if region not in regions:
        raise _fault("regions", f"{region!r} is not among them: {', '.join(regions)}")
    profile = load_profile(name, path.parent)
    check_regions(profile, regions)
    return RouterSettings(region, profile, regions, path.parent, shaper, seed)


def check_regions(profile: WanProfile, regions: Mapping[str, RegionNetwork]) -> None:
    """Raises: RouterError unless profile and settings have the same regions."""
    if set(profile.regions) != set(regions):
        raise _fault(
            "profile",
            f"{profile.name} has the regions {', '.join(profile.regions)}, the settings {', '.join(regions)}",
        )


def _regions(raw: object) -> dict[str, RegionNetwork]:
    if not isinstance(raw, dict) or len(raw) < 2:
        raise _fault("regions", "give at least two sections [regions.NAME]")
    regions = {name: _region(entry, f"regions.{name}") for name, entry in raw.items()}
    for (one, here), (other, there) in itertools.combinations(regions.items(), 2):
        if here.subnet.overlaps(there.subnet):
            raise _fault(f"regions.{other}.subnet", f"{there.subnet} overlaps {here.subnet} of {one}")
        if here.router == there.router:
            raise _fault(f"regions.{other}.router", f"{there.router} is the router of {one} already")
    for (one, here), (other, there) in itertools.product(regions.items(), repeat=2):
        if here.router in there.subnet:
            raise _fault(
                f"regions.{one}.router",
                f"{here.router} is in {there.subnet}, the network of {other}; give the address "
                "on the network between the regions",
            )
    return regions


def _region(entry: object, where: str) -> RegionNetwork:
    if not isinstance(entry, dict):
        raise _fault(where, "write it as a section")
    _refuse_unknown(entry, _REGION_KEYS, f"{where}.")
    for name in _REGION_KEYS:
        if not isinstance(entry.get(name), str):
            raise _fault(f"{where}.{name}", "missing; give an IPv4 address, or a network as subnet")
    try:
        network = RegionNetwork(
            IPv4Network(entry["subnet"]), IPv4Address(entry["gateway"]), IPv4Address(entry["router"])
        )
    except (AddressValueError, NetmaskValueError, ValueError) as error:
        raise _fault(where, str(error)) from error
    if network.gateway not in network.subnet:
        raise _fault(f"{where}.gateway", f"{network.gateway} is not in {network.subnet}")
    if network.gateway in (network.subnet.network_address, network.subnet.broadcast_address):
        raise _fault(f"{where}.gateway", f"{network.gateway} is no address of a host in {network.subnet}")
    return network


def _refuse_unknown(raw: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
    for name in raw:
        if name not in known:
            raise _fault(f"{prefix}{name}", unknown_key(name, known))


def _fault(field: str, message: str) -> RouterError:
    return RouterError(f"{field}: {message}", field=field)
