"""What a maintenance unit knows of one worker as a source of edits: its stream, its sequence, its lease."""

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from kvcompass.plan.model import Worker
from kvcompass.roles.turns import Turn


class Registration(StrEnum):
    """How a worker stands at a unit. A closed set: it is a metric's label."""

    ABSENT = "absent"
    """No agent has connected for it since the unit's start, and nothing is held for it."""
    LIVE = "live"
    """It has a lease, a stream, and the table holds what it says."""
    AWAITED = "awaited"
    """It has a lease; its report, or the rest of its edits, is still to come into the table."""
    SILENT = "silent"
    """It has no stream. What it holds stays until its lease ends."""
    ENDED = "ended"
    """Its lease has ended: it is cleared in every view until its engine and its agent are back."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A worker at a unit, for people."""

    registration: Registration
    agent_epoch: int
    """0 before an agent has connected."""
    sequence: int
    """Newest of the agent's that was received in order."""
    lease_left_us: int | None
    """None when there is no lease."""


@dataclass(slots=True, eq=False)
class AgentSession:
    """One Report stream; compared by identity."""

    turn: Turn
    """Its worker's; when that is over the stream ends."""
    told_ms: int
    """The lease that its agent was told, and may renew by."""

    @property
    def worker_id(self) -> str:
        """Whom it speaks for."""
        return self.turn.sender


@dataclass(slots=True)
class PartialReport:
    """A full report that is being taken in, chunk by chunk as they come, and the edits that come between."""

    taken_in: bool
    """The worker had a lease when the report began; what a dead worker says of itself is passed over."""
    size: int = 0
    """Keys so far."""
    is_whole: bool = False
    """Its last chunk has come."""
    has_ended: bool = False
    """All of it was edited: what it does not name is being withdrawn."""


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
    def is_busy(self) -> bool:
        """Something that came is still to be done."""
        return bool(self.backlog) or (self.report is not None and self.report.is_whole)

    @property
    def awaited(self) -> bool:
        """The table may lack something of what the worker holds, and a report may still come."""
        return (not self.in_step or bool(self.backlog)) and not self.lease_ended

    def registered(self, now_us: int) -> Registered:
        """How it stands."""
        left_us = None if self.lease_until_us is None else max(0, self.lease_until_us - now_us)
        return Registered(self._registration(), self.epoch, self.sequence, left_us)

    def _registration(self) -> Registration:
        if self.lease_ended:
            return Registration.ENDED
        if self.lease_until_us is None:
            return Registration.ABSENT
        if self.session is None:
            return Registration.SILENT
        return Registration.AWAITED if self.awaited else Registration.LIVE
