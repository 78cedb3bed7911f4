"""One request of a workload, before anybody has decided anything about it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class Request:
    """A prompt that reaches the edge of its own region. Made when it arrives and dropped when it ends.

    It has no session's id, as requests to an engine have none: a policy knows a conversation again by its
    beginning (`simulator.rivals.chunk_names`).

    Never changed; not frozen, for that takes five times as long to make.
    """

    id: int
    """Position in the workload, from 0."""
    arrives_us: int
    """At the edge; the way from the client to its edge is in no figure."""
    region: int
    """Origin: index of the fleet's regions."""
    prompt: NDArray[np.int32]
    """int32[n], n > 0; equal tokens are equal content."""
    answer: NDArray[np.int32]
    """int32[m], m > 0: the tokens that will come out; a later turn's prompt contains them."""
    tenant: int = 0
    category: str = ""
    """Kind of request, such as `tools` or `document`; reports and the eviction policy WA use it."""
    family: str = ""
    """What its prompt begins with, such as a document's name. For reports only."""
