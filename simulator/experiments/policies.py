"""The policies that can be simulated, by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from simulator.errors import SimulationError
from simulator.product.policies import PRODUCT_RIVALS, product_rival
from simulator.rivals.registry import RIVALS
from simulator.router import Rival

POLICIES: Final[Mapping[str, Rival]] = {
    rival.name: rival for rival in (*PRODUCT_RIVALS.values(), *RIVALS.values())
}
"""All of them, the product's first."""


def policy_named(name: str, faithful: bool) -> Rival:
    """Return a policy.

    Raises:
        SimulationError: There is none of that name.
    """
    if name not in POLICIES:
        message = f"{name!r} is no policy: take {', '.join(POLICIES)}, or `all`"
        raise SimulationError(message, field="policy")
    own = next((policy for policy in PRODUCT_RIVALS if policy == name), None)
    return product_rival(own, faithful=True) if faithful and own is not None else POLICIES[name]


def usual_eviction(workload: str) -> str:
    """Return what the paper's engines evict by (its 5.1): LFU on Mixed, LRU on chats; LFU on all else."""
    return "lru" if Path(workload).stem.startswith(("wildchat", "lmsys")) else "lfu"
