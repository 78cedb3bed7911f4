"""What a policy is asked."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class MatchArrays(Protocol):
    """What the index says of every worker; `kvcompass.index.Matches` is one. Read during `decide` only."""

    @property
    def match_tokens(self) -> NDArray[np.int32]:
        """int32[W]: longest match, tokens; 0 none."""

    @property
    def tier(self) -> NDArray[np.uint8]:
        """uint8[W]: `kvcompass.tier.Tier` at that length; NONE where there is no match."""


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """One request to place."""

    prompt_tokens: int
    """L."""
    sharing_group: str
    """Only workers of this group are candidates."""
    matches: MatchArrays
    keys: NDArray[np.uint64]
    """uint64[n]: keys of the first n rungs of the query plan; carried to the decision, not read."""
    expected_tokens: NDArray[np.int32] | None = None
    """int32[W]: what requests under way are about to leave at each worker, tokens; None when nowhere any."""
    exclude: frozenset[int] = frozenset()
    """Workers (indices) this request has already failed at."""
    blind: bool = False
    """The index could not be read in full or in time (a shard STALE or ABSENT)."""
