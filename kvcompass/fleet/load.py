"""What components tell one another about load. Mirrors `proto/kvcompass/v1/load.proto`."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray


class WorkerState(IntEnum):
    """Whether a worker takes requests. UNKNOWN is what a receiver makes of silence; it is never sent."""

    UNKNOWN = 0
    READY = 1
    DRAINING = 2
    UNREACHABLE = 3


class WorkerLoad(NamedTuple):
    """Load of one worker. A tuple, because edges make and take thousands a second."""

    worker_id: str
    state: WorkerState
    queue_ms: float
    """Estimated delay before a new request's prefill starts."""
    running: int = 0
    """Requests being served."""
    waiting: int = 0
    """Requests queued in the engine."""
    used_tokens: int = 0
    """Tokens in the KV pool by requests under way, not what is only cached. 0 while some run: not told."""
    max_tokens: int = 0
    """Size of the KV pool, tokens."""
    prefill_ms_per_token: float = 0.0
    """Measured; 0 when the sender has not measured."""
    age_ms: int = 0
    """Since the sender learned it; 0 at the agent."""


LOAD_ROW: Final = np.dtype(
    [
        ("state", np.uint8),
        ("queue_ms", np.float64),
        ("running", np.uint32),
        ("waiting", np.uint32),
        ("used_tokens", np.uint64),
        ("max_tokens", np.uint64),
        ("prefill_ms_per_token", np.float64),
        ("age_ms", np.uint32),
    ],
    align=True,
)
"""A `WorkerLoad` less its worker's id, field by field. Kernels take thousands in a call."""


@dataclass(frozen=True, slots=True, eq=False)
class RegionLoad:
    """Queue vector of one region as one of its edges sees it: a broadcast, or the piggyback of a response."""

    edge_id: str
    region: str
    epoch: int
    sequence: int
    workers: tuple[str, ...]
    """Ids."""
    rows: NDArray[np.void]
    """LOAD_ROW[len(workers)]; never written to."""


def load_of_row(worker_id: str, row: tuple[Any, ...]) -> WorkerLoad:
    """The load that a row was made of."""
    state, *rest = row
    return WorkerLoad(worker_id, WorkerState(state), *rest)


class LoadVerdict(Enum):
    """What became of a load message. Everything but ACCEPTED leaves the view as it was, and is counted."""

    ACCEPTED = "accepted"
    OLD_SEQUENCE = "old_sequence"
    UNKNOWN_SENDER = "unknown_sender"
    WRONG_REGION = "wrong_region"

    __hash__ = object.__hash__
    """A member is equal to itself alone; the hash of its name takes a call into Python at every count."""
