"""Limits and periods of a maintenance unit, and what it counts."""

from dataclasses import dataclass

from kvcompass.roles.desk_bounds import DeskBounds, DeskCounters


@dataclass(frozen=True, slots=True)
class UnitBounds(DeskBounds):
    """Limits and periods of a unit."""

    report_keys: int = 16_000_000
    """Keys of one full report, and of the edits that come between its chunks."""
    compare_period_us: int = 5_000_000
    """Between two comparisons of a worker's holdings with the table, while it keeps changing."""
    request_period_us: int = 1_000_000
    """Between two requests for a report that does not come."""
    settle_leases: int = 2
    """Leases after the start that the unit waits, at most, for workers that are not connected; as long a
    restored worker has until its agent is back."""
    settle_reports_leases: int = 20
    """Leases after the start that it waits, at most, for the reports of workers that are."""


@dataclass(slots=True)
class UnitCounters(DeskCounters):
    """What happened, ever. Each field is a metric."""

    edited_keys: int = 0
    old_messages: int = 0
    """Reports and edits at or below the applied sequence: ignored."""
    ignored_edits: int = 0
    """Edits of a worker that is out of step, whose report is awaited."""
    holes: int = 0
    digest_mismatches: int = 0
    """A worker's holdings differed from the table at an equal sequence."""
    report_requests: int = 0
    full_reports: int = 0
    leases_ended: int = 0
    rebuilds: int = 0
    """Changes that no patch tells: each sends every subscriber a snapshot."""
    growths: int = 0
    """Tables doubled in place."""
    superseded_agents: int = 0
    """An agent of another epoch took the place of one whose stream was open."""
    superseded_streams: int = 0
    """A stream of the same epoch took the place of one that was open."""
    over_bound: int = 0
    """Refusals of workers that have more keys than the plan allows them."""
