"""What a maintenance unit refuses an agent, and what to do about it."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import excerpt
from kvcompass.roles.messages import MESSAGE_KEYS_MOST, Refusal

_FEW_KEYS: Final = 16


def not_planned(worker_id: str, plan_version: int) -> Refusal:
    """The unit does not know the worker."""
    return Refusal("worker_id", f"{worker_id} is not in plan version {plan_version}; add it to the plan")


def not_its_own(component_id: str, worker_id: str) -> Refusal:
    """An agent dials as the worker that it reports of."""
    return Refusal("component_id", f"{component_id} says that it reports of {excerpt(worker_id)}")


def not_yet(worker_id: str) -> Refusal:
    """The worker has a place that others may have had, and some edges may go by the plan before."""
    return Refusal(
        "worker_id",
        f"{worker_id} has the place of one that left: it is taken in when the plan is settled; try again",
    )


def too_many_keys(keys: int, most: int, plan_version: int) -> Refusal:
    """One worker has more keys in the shard than the plan allows."""
    return Refusal(
        "index.worker_entries_max",
        f"{keys} keys of one worker in a shard, and plan version {plan_version} allows"
        f" {most}; give agent and unit the same plan, or raise the bound",
    )


def unfit_keys(keys: NDArray[np.uint64], owned: range, shard: int, field: str) -> Refusal | None:
    """The refusal of a message that has too many keys, or one that the shard does not own; None if fit."""
    if keys.size > MESSAGE_KEYS_MOST:
        return Refusal(
            field,
            f"{keys.size} keys in one message; send at most {MESSAGE_KEYS_MOST}, and the rest in others",
        )
    if not keys.size:
        return None
    least, largest = _ends(keys)
    if least in owned and largest in owned:
        return None
    return Refusal(field, f"a key belongs to another shard than {shard}")


def _ends(keys: NDArray[np.uint64]) -> tuple[int, int]:
    """The least key and the largest. A call of numpy takes as long as the list of a dozen does."""
    if keys.size > _FEW_KEYS:
        return int(keys.min()), int(keys.max())
    few = keys.tolist()
    return min(few), max(few)
