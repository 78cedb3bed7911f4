"""Limits and periods of whoever serves a shard's subscribers, and what it counts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeskBounds:
    """Limits and periods of a desk."""

    log_groups: int = 65_536
    """Patch groups kept for subscribers that are behind; one further behind gets a snapshot."""
    log_bytes: int = 16 << 20
    message_groups: int = 256
    """Patch groups sent in one message, or what costs a view as much; one log entry may exceed it."""
    chunk_bytes: int = 1 << 18
    """Payload of a snapshot chunk: an edge decodes one in 0.5-1 ms."""
    subscriptions: int = 1_024
    """Subscribers at once. Those that the plan foresees have room among them; others have what is left."""
    watermark_period_us: int = 1_000_000
    """Watermarks go out at this period, when idle too; a follower that hears nothing for longer is stale."""


@dataclass(slots=True)
class DeskCounters:
    """What happened at a desk, ever. Each field is a metric."""

    refusals: int = 0
    snapshots: int = 0
    """Snapshots begun."""
    overflows: int = 0
    """Subscribers that fell off the log and were sent a snapshot."""
    stalled: int = 0
    """Streams ended since their subscriber took no message for too long."""
    superseded_subscribers: int = 0
    """Open streams of a subscriber whose place a newer one of it took."""
