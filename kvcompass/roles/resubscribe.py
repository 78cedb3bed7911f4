"""Why an edge gives a stream of a shard up."""

from dataclasses import dataclass
from enum import StrEnum


class ResubscribeReason(StrEnum):
    """Why a stream is given up for a new one. A closed set: it is a metric's label."""

    GAP = "gap"
    """Patch groups are missing before those that came."""
    BEHIND = "behind"
    """A watermark is ahead of everything that came."""
    EPOCH = "epoch"
    """The unit has restarted and sent something else than a snapshot."""
    DIGEST = "digest"
    """The view differs from the table at an equal sequence."""
    BROKEN = "broken"
    """A snapshot or a patch group is malformed, or chunks are missing."""
    REFUSED = "refused"
    """The unit does not accept the handshake."""
    SILENCE = "silence"
    """Nothing came for longer than the bound."""
    LOST = "lost"
    """The connection broke, or the other side ended the stream alone."""
    UNAVAILABLE = "unavailable"
    """An edge that was asked for the shard cannot serve it, or not yet."""
    MOVED = "moved"
    """Nothing is wrong: the shard is followed elsewhere from here on."""


@dataclass(frozen=True, slots=True)
class Resubscribe:
    """What the caller does next: end the stream, open a new one."""

    reason: ResubscribeReason
    detail: str
