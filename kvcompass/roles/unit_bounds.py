"""Limits and periods of a maintenance unit, and what it counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnitBounds:
    """Limits and periods of a unit."""

    log_groups: int = 65_536
    """Patch groups kept for subscribers that are behind; one further behind gets a snapshot."""
    log_bytes: int = 16 << 20
    message_groups: int = 256
    """Patch groups sent in one message, or what costs a view as much; one log entry may exceed it."""
    chunk_bytes: int = 1 << 18
    """Payload of a snapshot chunk: an edge decodes one in 0.5-1 ms."""
    report_keys: int = 16_000_000
    """Keys of one full report, and of the edits that come between its chunks."""
    subscriptions: int = 1_024
    watermark_period_us: int = 1_000_000
    """Watermarks go out at this period, when idle too; a follower that hears nothing for longer is stale."""
    compare_period_us: int = 5_000_000
    """Between two comparisons of a worker's holdings with the table, while it keeps changing."""
    request_period_us: int = 1_000_000
    """Between two requests for a report that does not come."""
    settle_leases: int = 2
    """Leases after the start that the unit waits, at most, for workers that are not connected."""
    settle_reports_leases: int = 20
    """Leases after the start that it waits, at most, for the reports of workers that are."""


@dataclass(slots=True)
class UnitCounters:
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
    refusals: int = 0
    over_bound: int = 0
    """Refusals of workers that have more keys than the plan allows them."""
    snapshots: int = 0
    overflows: int = 0
    """Subscribers that fell off the log and were sent a snapshot."""
