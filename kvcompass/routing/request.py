"""What a policy is asked."""

from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.index.lookup_unit import Matches


class RoutingRequest(NamedTuple):
    """One request to place."""

    prompt_tokens: int
    """L."""
    sharing_group: str
    """Only workers of this group are candidates."""
    matches: Matches | None
    """What the index says of each worker; None: the policy looks the keys up, in the call that scores."""
    keys: NDArray[np.uint64]
    """uint64[n]: keys of the first n rungs of the query plan; carried to the decision."""
    expected_tokens: NDArray[np.int32] | None = None
    """int32[W]: what requests under way are about to leave at each worker, and what a worker of predicted
    holdings is taken to hold, tokens; None when nowhere any."""
    exclude: frozenset[int] = frozenset()
    """Workers (indices) this request has already failed at."""
    blind: bool = False
    """The index could not be read in full or in time (a shard STALE or ABSENT)."""
    answer_tokens: float = inf
    """The longest answer that is asked for."""

    def expected_at(self, worker: int) -> int:
        """Expected match at one worker, tokens."""
        return 0 if self.expected_tokens is None else int(self.expected_tokens[worker])
