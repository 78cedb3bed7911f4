"""The product's policies, as they stand beside their rivals."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from kvcompass.routing.names import POLICY_NAMES, PolicyName
from simulator.impairment import SOUND, Impairment
from simulator.product.router import ProductRouter
from simulator.router import Rival

_FOLLOWS: Final[Mapping[str, str]] = {
    "kvcompass": "the product: joint score of way, queue and reuse over the world",
    "regional": "the product's score within the request's own region, as if it stood alone",
    "round_robin": "the product's turns over all workers of the world",
}


def product_rival(policy: PolicyName, *, faithful: bool = False, impairment: Impairment = SOUND) -> Rival:
    """One of the product's policies, by its name in settings.

    `faithful`: each edge has a stream of its own from every unit, applied as it comes. Otherwise
    each unit's stream is made once, and an edge's view is brought up to date when a request asks it: the same
    decisions at the same instants, in less time, on links that delay every message alike. On others every run
    is faithful, and every one whose patches are lost or late.
    """
    make = partial(ProductRouter, policy=policy, faithful=faithful, impairment=impairment)
    follows = _FOLLOWS.get(policy, "the product's policy of this name")
    return Rival(policy, make, follows, regional=policy == "regional")


PRODUCT_RIVALS: Final = MappingProxyType({name: product_rival(name) for name in POLICY_NAMES})
"""Views are brought up to date when they are read."""
