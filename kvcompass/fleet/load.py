"""What components tell one another about load. Mirrors `proto/kvcompass/v1/load.proto`."""

from dataclasses import dataclass
from enum import IntEnum


class WorkerState(IntEnum):
    """Whether a worker takes requests. Values are the protocol's; 0 is never sent."""

    UNKNOWN = 0
    READY = 1
    DRAINING = 2
    UNREACHABLE = 3


@dataclass(frozen=True, slots=True)
class WorkerLoad:
    """One worker's load as its agent, or an edge of its region, knows it."""

    worker_id: str
    state: WorkerState
    queue_ms: float
    """Estimated delay before a new request's prefill starts."""
    running: int
    """Requests."""
    waiting: int
    """Requests."""
    used_tokens: int
    """Tokens in the KV pool."""
    max_tokens: int
    prefill_ms_per_token: float
    """Measured; 0 when unknown."""
    age_ms: int
    """Since the sender learned it; 0 at the agent."""


@dataclass(frozen=True, slots=True)
class RegionLoad:
    """The queue vector of one region, as one of its edges sees it."""

    edge_id: str
    region: str
    epoch: int
    sequence: int
    loads: tuple[WorkerLoad, ...]
