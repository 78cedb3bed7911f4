"""What a run of the compose lab showed, and whether it kept its promises."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lab.compose_test.round_trips import RoundTrip

UP_S = 120.0


@dataclass(slots=True)
class Figures:
    """Content of `out/compose.json`. Filled step by step; what a run did not reach stays empty."""

    engine: str = ""
    build_s: float = 0.0
    image_mb: float = 0.0
    up_s: float = 0.0
    wan_ms: Mapping[str, float] = field(default_factory=dict)
    """Measured round trip of each ordered pair of regions."""
    wan_error_ms: Mapping[str, float] = field(default_factory=dict)
    """Measured less planned."""
    reuse: Mapping[str, object] = field(default_factory=dict)
    partition: Mapping[str, object] = field(default_factory=dict)
    idle_path: Mapping[str, object] = field(default_factory=dict)
    """A 64 KB prompt after 10 s of silence."""
    recovery_s: dict[str, float] = field(default_factory=dict)
    """Service -> seconds from its kill until all was well again."""
    load: Mapping[str, object] = field(default_factory=dict)
    """The load generator's figures of all regions together."""
    cross_region_hits: int = 0
    users_requests: int = 0
    errors: int = 0
    """Requests of the users that failed while something was wrong elsewhere."""
    error_messages: Mapping[str, int] = field(default_factory=dict)
    panels_total: int = 0
    panels_with_data: int = 0
    panels_empty: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """One sentence for each promise that was not kept."""


def broken_promises(figures: Figures, round_trips: Mapping[str, RoundTrip]) -> list[str]:
    """One sentence for each promise that the figures break; empty when all are kept."""
    broken = [
        f"round trip {pair}: {trip.measured_ms:g} ms, planned {trip.planned_ms:g} ms"
        for pair, trip in round_trips.items()
        if not trip.within_tolerance
    ]
    if figures.up_s >= UP_S:
        broken.append(f"up after {figures.up_s:g} s; {UP_S:g} s are allowed")
    if figures.cross_region_hits < 1:
        broken.append("no request was served better from another region's cache")
    if figures.errors:
        broken.append(f"{figures.errors} requests failed: {dict(figures.error_messages)}")
    if not figures.panels_total or figures.panels_with_data < figures.panels_total:
        broken.append(
            f"{figures.panels_with_data} of {figures.panels_total} panels have data; "
            f"empty: {', '.join(figures.panels_empty)}"
        )
    return broken
