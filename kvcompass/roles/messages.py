"""What worker agents, maintenance units and edges say to one another about the index.

One dataclass a message of `proto/kvcompass/v1`, field for field; `services/wire` converts. Arrays are owned
by the message: `keys` is uint64[n], `tiers` uint8[n] (values of `kvcompass.tier.Tier`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.load import RegionLoad, WorkerLoad

PROTOCOL_VERSION: Final = 1
"""Spoken by this build; it also understands `PROTOCOL_VERSION - 1` when that is not 0."""

MESSAGE_KEYS_MOST: Final = 262_144
"""Keys of one message of an agent, at most."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """First words of the side that dials."""

    component_id: str
    """Id in the plan of the dialling edge or worker."""
    epoch: int
    """New at each start of the dialling process."""
    protocol_version: int
    plan_version: int
    layout: Mapping[str, str]
    """`kvcompass.plan.layout.layout_fields`; must be equal field by field."""


STREAM_FIELD: Final = "stream"
"""Field of a refusal that ends a stream and says nothing of the next one: it may be opened at once."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The answer to what is not accepted; the stream ends after it."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """To an agent: applied up to here. From an edge: the view is exact up to here."""

    sequence: int


# --- worker agent -> maintenance unit: one stream a (worker, unit) --------------------------------


@dataclass(frozen=True, slots=True)
class Renewal:
    """Renews the worker's lease. Sent only while the engine answers."""

    sequence: int
    """Last sequence sent for this shard in the agent's epoch; 0 before the first."""
    holdings_digest: int
    """`kvcompass.keys.digest.holdings_digest` of what the worker holds in this shard."""
    holdings: int
    """Number of keys it is taken over."""


@dataclass(frozen=True, slots=True)
class AgentHello:
    """Opens a Report stream; `holdings` is what the worker holds now."""

    handshake: Handshake
    worker_id: str
    holdings: Renewal


@dataclass(frozen=True, slots=True, eq=False)
class Edits:
    """Absolute tiers of one worker at keys of the unit's shard. Sequences start at 1 and have no holes."""

    sequence: int
    keys: NDArray[np.uint64]
    tiers: NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class FullReport:
    """One chunk of everything the worker holds in this shard; takes a sequence of its own."""

    sequence: int
    keys: NDArray[np.uint64]
    tiers: NDArray[np.uint8]
    first: bool
    last: bool


AgentToUnit: TypeAlias = AgentHello | Edits | FullReport | Renewal

# --- maintenance unit -> worker agent -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Welcome:
    """The hello is accepted. `full_report_wanted`: the unit holds something else for this worker.

    Comes again on an open stream when the plan's lease has changed, and wants no report then.
    """

    unit_epoch: int
    lease_ms: int
    full_report_wanted: bool


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """The unit lost track of this worker; only a full report mends it."""

    reason: str


UnitToAgent: TypeAlias = Welcome | ReportRequest | Acknowledgement | Refusal

# --- edge -> maintenance unit: one stream a (edge, unit) ------------------------------------------


@dataclass(frozen=True, slots=True)
class SubscribeRequest:
    """Opens a Subscribe stream. Epoch 0: a snapshot is wanted, whatever the view is."""

    handshake: Handshake
    unit_epoch: int
    applied_sequence: int
    shard: int = 0
    """What is asked for. An edge that serves this has all shards; a unit has one, and does not look."""
    loaded: bool = False
    """There is a view that is read; False from edges of the version before, where epoch 0 says that."""


EdgeToUnit: TypeAlias = SubscribeRequest | Acknowledgement

# --- maintenance unit -> edge, and edge -> edge of its region --------------------------------------


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A piece of a whole table, true at `sequence`; chunks come in order, 0 to `chunks - 1`."""

    unit_epoch: int
    sequence: int
    digest: int
    chunk: int
    chunks: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class PatchGroups:
    """Consecutive patch groups, packed as in `kvcompass.index.patches`; sequences number the groups."""

    unit_epoch: int
    first_sequence: int
    count: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Watermark:
    """The unit's table at a sequence; sent when idle too, so that silence is noticed."""

    unit_epoch: int
    sequence: int
    digest: int
    unsettled: bool = False
    """The unit began with its own snapshot, and agents may still correct it: a view of another epoch may know
    more than it."""


class UnavailableReason(StrEnum):
    """Why an edge does not pass a shard on. A closed set."""

    NOT_EXACT = "not_exact"
    """Its own view is not known to be equal to the unit's table."""
    FOLLOWS_EDGE = "follows_edge"
    """It follows another edge itself. Whoever does serves nobody, so that none follow in a circle."""
    UNKNOWN = "unknown"
    """A reason of a later version."""


@dataclass(frozen=True, slots=True)
class Unavailable:
    """An edge's answer where a unit would serve: follow the unit. The stream ends after it."""

    reason: UnavailableReason


UnitToEdge: TypeAlias = SnapshotChunk | PatchGroups | Watermark | Refusal | Unavailable

# --- load: `load.proto` ---------------------------------------------------------------------------


PREFILL_TOKENS_MOST: Final = 262_144
"""Tokens of one prefix that an edge asks for, at most."""
PREFILL_DEADLINE_MS_MOST: Final = 600_000
PREFILL_ANSWERS_MOST: Final = 64
"""Of one message of an agent."""


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaPrefill:
    """A prefix that an edge wants a worker of its region to hold, edge -> agent that takes prefills."""

    id: int
    """The edge's own, for the answer."""
    sharing_group: str
    """Whose caches the prefix belongs to."""
    tokens: NDArray[np.int32]
    """int32[n], n > 0: token ids from the first of a prompt on."""
    deadline_ms: int
    """From its arrival: it is given up then."""


class PrefillOutcome(StrEnum):
    """How the prefill of a replica ends: exactly one each. A closed set."""

    DONE = "done"
    """The engine went through all of the prefix; its events say what it holds of it."""
    FOREIGN_GROUP = "foreign_group"
    """The worker serves another sharing group."""
    TOO_LONG = "too_long"
    """Longer than the model's context."""
    QUEUE_FULL = "queue_full"
    NO_ROOM = "no_room"
    """It would not fit into free memory."""
    BUSY = "busy"
    """The worker had requests of its own until the deadline."""
    NOT_KNOWN = "not_known"
    """Until the deadline it was not known well enough what the worker does and holds."""
    EXPIRED = "expired"
    """The deadline came while it waited for another prefill, or was under way."""
    ABORTED = "aborted"
    """Requests came meanwhile; what was computed until then may be held."""
    FAILED = "failed"
    """The engine refused it, or broke."""


class PrefillAnswer(NamedTuple):
    """What became of a `ReplicaPrefill`, agent -> edge that asked."""

    id: int
    outcome: PrefillOutcome | None
    """None: one of a later version."""
    tokens: int
    """Of the prefix, that the engine went through."""


class AgentLoad(NamedTuple):
    """One worker's load, agent -> edges of its region. The first of a stream carries the handshake.

    A tuple for the reason that `WorkerLoad` is one.
    """

    handshake: Handshake | None
    epoch: int
    sequence: int
    load: WorkerLoad
    takes_prefills: bool = False
    """With the handshake: the edge may send a `ReplicaPrefill`."""
    prefill_answers: tuple[PrefillAnswer, ...] = ()


@dataclass(frozen=True, slots=True)
class RegionBroadcast:
    """A region's queue vector, edge -> edges of other regions. The first carries the handshake."""

    handshake: Handshake | None
    load: RegionLoad


LoadReply: TypeAlias = Acknowledgement | Refusal | ReplicaPrefill
