"""What engines tell that is not as expected, by a closed set of names: for metrics and for health."""

from collections.abc import Callable
from typing import Final

from services.worker_agent.served_worker import ServedWorker

_Counters = dict[str, Callable[[ServedWorker], int]]

IGNORED: Final[_Counters] = {
    "unknown_medium": lambda w: w.agent.holdings.events.unknown_media,
    "foreign_scope": lambda w: w.agent.holdings.events.foreign_scopes,
    "coarse_copy": lambda w: w.agent.holdings.events.coarse_copies,
    "malformed": lambda w: w.agent.holdings.events.malformed + w.follower.decoder.counters.malformed_events,
    "unknown_event": lambda w: w.follower.decoder.counters.unknown_events,
    "other_group": lambda w: w.follower.decoder.counters.other_groups,
    "conflicting_store": lambda w: w.agent.holdings.tree.conflicting_stores,
    "unknown_copy": lambda w: w.agent.holdings.tree.unknown_copies,
    "unknown_removal": lambda w: w.agent.holdings.tree.unknown_removals,
    "dropped_block": lambda w: w.agent.holdings.tree.dropped_blocks,
    "refused_block": lambda w: w.agent.holdings.tree.refused_blocks,
}
"""Events and blocks left out, by reason."""
CORRECTED: Final[_Counters] = {
    "unknown_field": lambda w: w.follower.decoder.counters.unknown_fields,
    "late_group": lambda w: w.follower.decoder.counters.late_groups,
    "late_parent": lambda w: w.agent.holdings.tree.late_parents,
}
"""What was taken in although something of it is unknown, or was put right by what came later."""


def seen(worker: ServedWorker) -> dict[str, int]:
    """Return how often each surprise was met, those that were."""
    counts = {name: read(worker) for name, read in (IGNORED | CORRECTED).items()}
    return {name: count for name, count in counts.items() if count}
