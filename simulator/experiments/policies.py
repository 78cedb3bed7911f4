"""The policies that can be simulated, by name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from simulator.errors import SimulationError
from simulator.impairment import SOUND, Impairment
from simulator.product.policies import PRODUCT_RIVALS, product_rival
from simulator.rivals.registry import RIVALS
from simulator.router import Rival

POLICIES: Final[Mapping[str, Rival]] = {
    rival.name: rival for rival in (*PRODUCT_RIVALS.values(), *RIVALS.values())
}
"""All of them, the product's first."""


def policy_named(name: str, faithful: bool, impairment: Impairment = SOUND) -> Rival:
    """Return a policy.

    Raises:
        SimulationError: There is none of that name, or it has no patches that could be late or lost.
    """
    if name not in POLICIES:
        message = f"{name!r} is no policy: take {', '.join(POLICIES)}, or `all`"
        raise SimulationError(message, field="policy")
    own = next((policy for policy in PRODUCT_RIVALS if policy == name), None)
    if own is not None and (faithful or impairment.of_patches):
        return product_rival(own, faithful=True, impairment=impairment)
    if impairment.of_patches:
        raise SimulationError(f"{name} has no patches: take {', '.join(PRODUCT_RIVALS)}", field="policy")
    return POLICIES[name]


def usual_eviction(workload: str) -> str:
    """Return what the paper's engines evict by (its 5.1): LFU on Mixed, LRU on chats; LFU on all else."""
    return "lru" if Path(workload).stem.startswith(("wildchat", "lmsys")) else "lfu"
