"""What a maintenance unit knows of one worker as a source of edits: its stream, its sequence, its lease."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kvcompass.plan.model import Worker


@dataclass(slots=True, eq=False)
class AgentSession:
    """One Report stream. A newer stream of the same worker takes its place; compared by identity."""

    worker_id: str


@dataclass(slots=True)
class PartialReport:
    """A full report that is arriving, and the edits that came between its chunks; later entries win."""

    keys: list[NDArray[np.uint64]] = field(default_factory=list)
    tiers: list[NDArray[np.uint8]] = field(default_factory=list)
    size: int = 0

    def add(self, keys: NDArray[np.uint64], tiers: NDArray[np.uint8]) -> None:
        """Appends a chunk, or an edit."""
        self.keys.append(keys)
        self.tiers.append(tiers)
        self.size += keys.size

    def holdings(self) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Distinct keys, ascending, and their tiers (never 0)."""
        keys, tiers = np.concatenate(self.keys), np.concatenate(self.tiers)
        distinct, newest = np.unique(keys[::-1], return_index=True)
        distinct_tiers = tiers[::-1][newest]
        held = distinct_tiers != 0
        return distinct[held], distinct_tiers[held]


@dataclass(slots=True)
class WorkerSource:
    """State of one worker at the unit. The unit is its only owner."""

    worker: Worker
    session: AgentSession | None = None
    epoch: int = 0
    """Of the agent; 0 until it has connected once."""
    sequence: int = 0
    """Newest sequence received in order in that epoch, or jumped to when a hole was reported."""
    lease_until_us: int | None = None
    """None before the first hello, and after the lease has ended."""
    lease_ended: bool = False
    in_step: bool = False
    """The table holds what the agent's messages up to `sequence` say; else edits wait for a report."""
    report: PartialReport | None = None
    backlog: deque[tuple[NDArray[np.uint64], NDArray[np.uint8]]] = field(default_factory=deque)
    """Slices of edits taken in but not yet in the table, in order."""
    report_requested_us: int | None = None
    """When a report was asked for that has not begun to arrive."""
    changed: bool = False
    """Edited since the holdings' digest was last compared."""
    compared_us: int = 0

    @property
    def awaited(self) -> bool:
        """The table may lack something of what the worker holds, and a report may still come."""
        return (not self.in_step or bool(self.backlog)) and not self.lease_ended


def edits_between(
    held_keys: NDArray[np.uint64],
    held_tiers: NDArray[np.uint8],
    keys: NDArray[np.uint64],
    tiers: NDArray[np.uint8],
) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
    """The edits that turn one set of holdings into another: removals first, so that they make room.

    Both sets have distinct keys and no tier 0; `keys` is ascending. Equal entries yield no edit.
    """
    gone = held_keys[~np.isin(held_keys, keys, assume_unique=True)]
    order = np.argsort(held_keys)
    sorted_keys, sorted_tiers = held_keys[order], held_tiers[order]
    at = np.searchsorted(sorted_keys, keys)
    unchanged = np.zeros(keys.size, dtype=np.bool_)
    inside = at < sorted_keys.size
    unchanged[inside] = (sorted_keys[at[inside]] == keys[inside]) & (
        sorted_tiers[at[inside]] == tiers[inside]
    )
    return (
        np.concatenate([gone, keys[~unchanged]]),
        np.concatenate([np.zeros(gone.size, dtype=np.uint8), tiers[~unchanged]]),
    )
