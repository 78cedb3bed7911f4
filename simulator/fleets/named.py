"""The fleets that have a name: the paper's, and a family to scale."""

import re
from collections.abc import Callable
from typing import Final

from simulator.errors import SimulationError
from simulator.fleet import Fleet
from simulator.fleets.build import Site, build_fleet
from simulator.fleets.engines import A100, RTX_5090
from simulator.fleets.latencies import LOCAL_MS, wan_matrix
from simulator.fleets.options import FleetOptions
from simulator.fleets.places import CITIES, CLOUD_REGIONS

_PAPER_64: Final = {
    "us-east-1": 30,
    "ap-east-1": 13,
    "eu-central-1": 8,
    "ap-northeast-1": 3,
    "ap-southeast-1": 3,
    "eu-west-2": 3,
    "ap-northeast-2": 2,
    "ap-southeast-2": 2,
}
"""Workers of the paper's 5.3: US 30, CN 13, DE 8, and 2-3 in each of JP, SG, GB, KR, AU; the larger countries
of its census (Hou et al., POMACS 10(1):15) have the third. For CN the nearest region measured is Hong
Kong."""

_PAPER_128: Final = {
    "us-east-1": 26,
    "ap-east-1": 12,
    "eu-central-1": 10,
    "ap-northeast-1": 8,
    "ap-southeast-1": 7,
    "eu-west-2": 8,
    "ap-northeast-2": 6,
    "ap-southeast-2": 6,
    "us-west-2": 14,
    "eu-west-1": 10,
    "ap-south-1": 5,
    "sa-east-1": 4,
    "ca-central-1": 5,
    "eu-south-1": 2,
    "me-south-1": 2,
    "af-south-1": 3,
}
"""Workers of the paper's Appendix A, which tells "2 to 7" for nine countries: here by the census's counts."""

_TESTBED_MS: Final = ((LOCAL_MS, 160.0, 126.0), (160.0, LOCAL_MS, 149.0), (126.0, 149.0, LOCAL_MS))
"""One way between US, EU and Asia (paper 5.2)."""

_NORTH_AMERICA_MS: Final = (
    (LOCAL_MS, 5.8, 9.8, 31.0),
    (5.8, LOCAL_MS, 16.6, 24.9),
    (9.8, 16.6, LOCAL_MS, 37.4),
    (31.0, 24.9, 37.4, LOCAL_MS),
)
"""One way between Pennsylvania, Ohio, New York and Calgary. The paper's Appendix B tells the ends of both
ranges, 5.8 to 16.6 and 24.9 to 37.4; which pair has which, and the two in the middle, are ours."""

_SCALE: Final = re.compile(r"scale-(\d+)x(\d+)")
_SCALE_PLACES: Final = (*CLOUD_REGIONS, *CITIES)


def _paper_64(options: FleetOptions) -> Fleet:
    return _cloud("paper-64", _PAPER_64, options)


def _paper_128(options: FleetOptions) -> Fleet:
    return _cloud("paper-128", _PAPER_128, options)


def _testbed_14(options: FleetOptions) -> Fleet:
    sites = (Site("us", 8), Site("eu", 2), Site("asia", 4))
    return build_fleet("testbed-14", sites, _TESTBED_MS, RTX_5090, options)


def _testbed_11(options: FleetOptions) -> Fleet:
    sites = (Site("pennsylvania", 2), Site("ohio", 4), Site("new-york", 1), Site("calgary", 4))
    return build_fleet("testbed-11", sites, _NORTH_AMERICA_MS, RTX_5090, options)


def _pd_10(options: FleetOptions) -> Fleet:
    """7 prefill and 3 decode GPUs over three regions (App. C); the split is ours, in the testbed's ratio."""
    sites = (Site("us", 4, decoders=1), Site("eu", 1, decoders=1), Site("asia", 2, decoders=1))
    return build_fleet("pd-10", sites, _TESTBED_MS, RTX_5090, options)


NAMED: Final[dict[str, Callable[[FleetOptions], Fleet]]] = {
    "paper-64": _paper_64,
    "paper-128": _paper_128,
    "testbed-14": _testbed_14,
    "testbed-11": _testbed_11,
    "pd-10": _pd_10,
}
"""By name; beside these there are `scale-WxR` and plan files."""


def scale_fleet(name: str, options: FleetOptions) -> Fleet | None:
    """Return W workers spread evenly over R regions for a name `scale-WxR`; None for any other name.

    Raises:
        SimulationError: There are no such fleets: fewer workers than regions, or too many regions.
    """
    match = _SCALE.fullmatch(name)
    if match is None:
        return None
    workers, regions = int(match[1]), int(match[2])
    if not 0 < regions <= min(workers, len(_SCALE_PLACES)):
        raise SimulationError(
            f"{name!r}: W workers in R regions need 0 < R <= W and R <= {len(_SCALE_PLACES)}", field="fleet"
        )
    share, left = divmod(workers, regions)
    return _cloud(
        name, {place: share + (i < left) for i, place in enumerate(_SCALE_PLACES[:regions])}, options
    )


def _cloud(name: str, workers: dict[str, int], options: FleetOptions) -> Fleet:
    sites = [Site(region, count) for region, count in workers.items()]
    return build_fleet(name, sites, wan_matrix(list(workers), options.wan), A100, options)
