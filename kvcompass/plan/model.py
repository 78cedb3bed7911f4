"""The plan: one description of a fleet that every component shares. Plain values; parsing is beside it."""

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What must be equal everywhere for two caches to be the same cache."""

    id: str
    """Served model name, as clients send it."""
    tokenizer: str
    """`builtin:kvcompass-bpe`, or a path to a `tokenizer.json`, relative to the plan file."""
    chat_template: str
    """`builtin:kvcompass-chat`, or a path to a Jinja file, relative to the plan file."""
    block_size: int
    """Tokens a KV block (the engine's page size)."""
    context_length: int
    """Tokens; rungs above it are clipped and reported."""


@dataclass(frozen=True, slots=True)
class LengthRule:
    """How indexed lengths are chosen (paper 3.2; ours in docs/decisions)."""

    policy: Literal["ladder", "paper"] = "ladder"
    quantum: int = 128
    """Tokens; every rung is a multiple. Itself a multiple of the block size."""
    stretch: float = 0.75
    """How fast rungs part: the next is `stretch` * sqrt(rung / quantum) quanta further, at least one."""
    levels: int = 6
    """Lengths queried toward a region under `paper`; ignored by `ladder`."""


@dataclass(frozen=True, slots=True)
class IndexRule:
    """Layout of the Ludo tables."""

    value_bits: Literal[32, 64] = 32
    """Of a slot: a 2-bit field a worker, so 16 or 32 workers a table."""
    layout: Literal["fingerprints", "paper"] = "fingerprints"
    """`paper` leaves the fingerprints out, to compare with: smaller, wrong about keys it never saw, and with
    32-bit values only."""
    expected_entries: int = 65_536
    """Entries a table (one shard, region and worker group) is sized for."""
    worker_entries_max: int = 0
    """Prefixes that one worker registers in all shards, at most; above it those of its longest lengths are
    not registered. 0: four times the expected entries of its tables."""
    slots_given: tuple[int, ...] = ()
    """Slots ever given in each table, kept by `kvcompass plan assign` so that none is given twice unasked.
    Empty: not kept yet, and the workers of the plan are all there ever were."""


def worker_slots(value_bits: int) -> int:
    """Return how many workers a table has fields for: a value holds one tier of 2 bits each."""
    return value_bits // 2


@dataclass(frozen=True, slots=True)
class RoutingRule:
    """Constants of the joint score and of the load exchange (paper 3.4, Table 1)."""

    queue_scale_ms: float = 200.0
    """tau of the capacity price."""
    capacity_price_max: float = 8.0
    """lambda_max."""
    wan_charge: Literal["round_trip", "one_way"] = "round_trip"
    """What the score charges for a far worker: there and back, as a user waits, or the paper's one way."""
    decode_tokens: int = 50
    """How many tokens of an answer, at most, are charged with what a worker's batch adds to a decode step. 0:
    none, the paper's score."""
    belief_weight: float = 0.2
    """EWMA weight of a new reused/claimed ratio."""
    belief_recovery_ms: int = 60_000
    """Time constant with which disbelief fades while a worker is not observed."""
    ewma_weight: float = 0.5
    """w: weight of a new queue report."""
    broadcast_period_ms: int = 100
    """Delta: period of the cross-region queue vector."""
    lease_ms: int = 3_000
    """A worker silent for longer is cleared everywhere."""
    predicted_ttl_ms: int = 60_000
    """How long a worker of predicted holdings is credited with a prompt that was sent there. A busy A100 of
    the calibration (docs/decisions/0601) writes its 244,140 tokens of cache once over in 16 s of prefill
    without a pause, in a minute at a quarter of that."""


@dataclass(frozen=True, slots=True)
class Edge:
    """A gateway of a region. Addresses are host:port."""

    id: str
    region: str
    address: str
    """Public OpenAI-compatible listener."""
    peer_address: str
    """Authenticated HTTP listener for other regions' edges."""
    grpc_address: str
    """Load reports of the region's agents and the other regions' queue vectors."""
    ops_address: str = ""
    """Its operations listener, where `kvcompass plan apply` brings it a new plan; empty: not reached so."""


@dataclass(frozen=True, slots=True)
class MaintenanceUnit:
    """The only writer of one shard."""

    id: str
    shard: int
    region: str
    address: str
    ops_address: str = ""
    """Its operations listener, as an edge's."""


HBM_OVER_PCIE: Final = 80.0
"""A100: 2 TB/s over 25 GB/s. 67 on an H100, 96 on an H200; less where HBM is not what memory is made of."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One engine instance. `table` and `slot` are given by `kvcompass plan` and never renumbered."""

    id: str
    region: str
    url: str
    events: str
    """ZMQ endpoint of the engine's KV event publisher; empty: as the engine says at `/server_info`."""
    table: int
    slot: int
    prefill_ms_per_token: float
    """beta_r."""
    reload_ms_per_token: float
    """gamma. Without a DRAM tier too it says what a token's KV weighs (`context_ms_per_token`)."""
    replay: str = ""
    """ZMQ endpoint of the engine's replay socket; empty: as the engine says, or none."""
    sharing_group: str = "default"
    """The one group whose requests this engine serves (one that cannot report salts serves just one)."""
    drain: bool = False
    """It gets no new requests, and finishes those it has: the step before its lines are deleted."""
    ops_address: str = ""
    """The operations listener of its agent, as an edge's; workers of one agent share it."""
    dp_rank: int | None = None
    """Which data-parallel rank of the engine it is: each has a cache of its own. None: the engine has one."""
    decode_ms_per_context_token: float | None = None
    """What a token in the batch's contexts adds to a decode step; 0 at a worker that only prefills. None: an
    `HBM_OVER_PCIE`th of reloading it."""
    holdings: Literal["events", "predicted"] = "events"
    """How it is known what it holds: by the engine's events, or, of an engine that sends none, as what edges
    have sent there within `routing.predicted_ttl_ms` (APPROXIMATE)."""

    @property
    def context_ms_per_token(self) -> float:
        """`decode_ms_per_context_token`, or what stands for it."""
        told = self.decode_ms_per_context_token
        return self.reload_ms_per_token / HBM_OVER_PCIE if told is None else told


@dataclass(frozen=True, slots=True)
class SharingGroup:
    """Tenants that share caches. The salt enters every key, so that groups never match one another."""

    id: str
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole fleet. Regions keep the order of the file; `wan_ms[o][r]` is one way, in ms.

    What is derived from it (ladder, first lengths, shard map, layout) is in `kvcompass.levels` and
    `kvcompass.plan.layout`; nothing derived is stored here.
    """

    fleet: str
    plan_version: int
    model: ModelIdentity
    lengths: LengthRule
    index: IndexRule
    routing: RoutingRule
    regions: tuple[str, ...]
    wan_ms: tuple[tuple[float, ...], ...]
    edges: tuple[Edge, ...]
    units: tuple[MaintenanceUnit, ...]
    workers: tuple[Worker, ...]
    sharing_groups: tuple[SharingGroup, ...]

    @property
    def shards(self) -> int:
        """Number of shards: units are numbered 0..shards-1."""
        return len(self.units)

    @property
    def worker_entries_max(self) -> int:
        """Prefixes that one worker registers in all shards, at most."""
        return self.index.worker_entries_max or 4 * self.index.expected_entries * self.shards

    @property
    def worker_shard_entries_max(self) -> int:
        """Prefixes that one worker has in one shard, at most: its share, and room for chance."""
        return 2 * self.worker_entries_max // self.shards + 1_024

    @property
    def tables(self) -> int:
        """Number of tables in a shard. Table ids are dense, in the order they were given."""
        return 1 + max(worker.table for worker in self.workers)

    def salt_of(self, group_id: str) -> str:
        """The salt of a sharing group of this plan."""
        return next(group.salt for group in self.sharing_groups if group.id == group_id)

    def region_index(self, region: str) -> int:
        """Position of a region in `regions` and `wan_ms`."""
        return self.regions.index(region)

    def worker_index(self, worker_id: str) -> int:
        """Position of a worker in `workers`; arrays over workers use it."""
        return next(i for i, worker in enumerate(self.workers) if worker.id == worker_id)
