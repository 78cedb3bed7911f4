"""The product's policies, as they stand beside their rivals."""

from functools import partial
from types import MappingProxyType
from typing import Final

from kvcompass.routing.names import POLICY_NAMES, PolicyName
from simulator.impairment import SOUND, Impairment
from simulator.product.router import ProductRouter
from simulator.router import Rival


def product_rival(policy: PolicyName, *, faithful: bool = False, impairment: Impairment = SOUND) -> Rival:
    """One of the product's policies, by its name in settings.

    `faithful`: each edge has a stream of its own from every unit, applied as it comes. Otherwise
    each unit's stream is made once, and an edge's view is brought up to date when a request asks it: the same
    decisions at the same instants, in less time, on links that delay every message alike. On others every run
    is faithful, and every one whose patches are lost or late.
    """
    make = partial(ProductRouter, policy=policy, faithful=faithful, impairment=impairment)
    return Rival(policy, make, "the product's code and its services' defaults")


PRODUCT_RIVALS: Final = MappingProxyType({name: product_rival(name) for name in POLICY_NAMES})
"""Views are brought up to date when they are read."""
