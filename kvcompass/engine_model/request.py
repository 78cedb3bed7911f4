"""What an engine is asked for, and what it tells of it."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray


@dataclass(slots=True, eq=False)
class EngineRequest:
    """Tokens in, and the tokens that will come out (a model of an engine invents nothing).

    Never changed; not frozen, for that takes five times as long to make.
    """

    id: str
    prompt: NDArray[np.int32]
    """int32[n], n > 0."""
    answer: NDArray[np.int32]
    """int32[m]; empty means prefill only."""
    workload: str = ""
    """Category of the request, such as its type and turn; only the policy WA looks at it."""
    scope: str = ""
    """Salt or adapter that separates its cache from that of equal tokens; empty for none."""
    transferred: bool = False
    """The KV comes from a prefill engine (a decode worker's request): no time to compute, nothing matched,
    nothing stored and no events, for SGLang's decode workers have no prefix cache by default."""


@dataclass(slots=True)
class Progress:
    """`generated` answer tokens exist since `at_us`. Never changed (see EngineRequest)."""

    request_id: str
    at_us: int
    generated: int
    cached_tokens: int
    """Prompt tokens that were reused, from either tier."""
    finished: bool
    cached_host_tokens: int = 0
    """Of these, tokens that were loaded back from DRAM."""


class Rejection(Enum):
    """Why a request was not taken."""

    QUEUE_FULL = "the request queue is full"
    TOO_LARGE = "the request needs more tokens than the KV cache holds"
    DUPLICATE_ID = "a request of this id is in flight"
