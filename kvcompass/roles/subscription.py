"""A subscriber of a shard, as its server sees it: a place in the patch log, or a snapshot under way."""

from dataclasses import dataclass

from kvcompass.roles.shard_writer import FrozenTables
from kvcompass.roles.turns import Turn


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A whole table at a sequence. Shared by all subscribers that get it."""

    sequence: int
    digest: int
    tables: FrozenTables


@dataclass(slots=True, eq=False)
class Subscription:
    """State of one Subscribe stream. Its desk is the only owner; compared by identity."""

    turn: Turn
    """Its subscriber's; when that is over the stream ends."""
    cursor: int | None
    """Sent up to here; None: a snapshot comes first."""
    snapshot: Snapshot | None = None
    """The snapshot being sent."""
    next_chunk: int = 0
    watermark_due_us: int = 0
    """When there may be something to send although nothing has changed: its next watermark."""
    plan_version: int = 0
    """What the subscriber claimed when the stream began."""
    fell_behind: bool = False
    """The server's plan is two versions after that: the stream ends."""
    acknowledged: int = 0
    """Applied sequence that the subscriber told last."""
    waits: bool = False
    """Its view may be newer than the tables: it is served once the unit has settled."""
    knows_why: bool = False
    """Its subscriber has been told why it ends."""
    served: bool = False
    """Something has been sent: a snapshot from now on means that this subscriber fell behind."""

    @property
    def subscriber(self) -> str:
        """Id of who follows."""
        return self.turn.sender

    @property
    def must_end(self) -> bool:
        """It is sent nothing more but why."""
        return self.turn.is_over or self.fell_behind
