"""The policies by name, and what they have in common."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Protocol

from kvcompass.fleet.view import FleetView
from kvcompass.index.lookup_unit import Lookup
from kvcompass.routing.decision import Decision, NoWorker
from kvcompass.routing.joint_score import JointScorePolicy
from kvcompass.routing.names import PolicyName
from kvcompass.routing.request import RoutingRequest
from kvcompass.routing.round_robin import RoundRobinPolicy


class Policy(Protocol):
    """Places requests by one fleet view. Holds nothing of a request after `decide`."""

    @property
    def name(self) -> str:
        """As in settings, decisions and metrics."""

    @property
    def turn(self) -> int:
        """Whose turn it is among equals, as `rotation_start` of a policy that goes on from here."""

    def decide(self, request: RoutingRequest, now_us: int, *, explain: bool = False) -> Decision | NoWorker:
        """Choose a worker; `explain` lists every candidate and takes nobody's turn."""


Maker = Callable[[FleetView, int, Lookup | None], Policy]
"""Makes a policy of a fleet view, the position its turns start at and where it looks matches up."""

POLICIES: Mapping[PolicyName, Maker] = MappingProxyType(
    {
        "kvcompass": partial(JointScorePolicy, "kvcompass", own_region=False),
        "regional": partial(JointScorePolicy, "regional", own_region=True),
        "round_robin": partial(RoundRobinPolicy, "round_robin"),
    }
)
"""`kvcompass`: joint score over the world. `regional`: the same within the origin region, as if it stood
alone. `round_robin`: turns over all live workers of the world."""


def make_policy(
    name: PolicyName, fleet: FleetView, rotation_start: int = 0, lookup: Lookup | None = None
) -> Policy:
    """A policy by its name in `POLICIES` (settings refuse others before this).

    `lookup` is needed for requests that come without their matches.
    """
    return POLICIES[name](fleet, rotation_start, lookup)
