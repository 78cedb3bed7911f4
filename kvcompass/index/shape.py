"""How many tables an index has and how large they are."""

from dataclasses import dataclass
from typing import Final

from kvcompass.errors import KVCompassError
from kvcompass.index.layout import Layout, table_layout
from kvcompass.kernels.arrays import U64
from kvcompass.kernels.image import BUCKETS, NODES_A, NODES_B, NODES_MOST, SLOTS
from kvcompass.plan.model import Plan, worker_slots

_FILL: Final = 0.85
"""Occupancy at the expected number of entries. Above about 0.95 inserts get slow and then fail."""
_ROOM: Final = 2
"""Buckets for each entry that a table can come to: units and edges may have plans that differ."""
_LEAST_NODES: Final = 64


@dataclass(frozen=True, slots=True)
class IndexShape:
    """The layout that a unit's writer and every view must agree on; table sizes may differ and grow."""

    shards: int
    tables: int
    """Tables a shard; ids are 0..tables-1."""
    value_bits: int
    expected_entries: int
    """Entries a new table is sized for."""
    layout: str = "fingerprints"
    """`index.layout` of the plan."""
    entries_most: int = 1 << 32
    """Entries that a table can come to: a view refuses one that has room for many times as many."""

    def __post_init__(self) -> None:
        size = table_size(self.expected_entries, self.table_layout)
        if self.shards < 1 or self.tables < 1 or self.expected_entries < 1:
            raise KVCompassError(
                f"an index needs at least one shard, table and expected entry, got {self}", field="index"
            )
        if not size.doubled.is_addressable:
            raise KVCompassError(
                f"{self.expected_entries} entries do not fit one table; split them over more shards",
                field="index.expected_entries",
            )

    @property
    def table_layout(self) -> Layout:
        """The layout of every table. Raises KVCompassError when there is none of this name and width."""
        return table_layout(self.layout, self.value_bits)

    @property
    def worker_slots(self) -> int:
        """Workers a table has fields for."""
        return worker_slots(self.value_bits)

    @property
    def buckets_most(self) -> int:
        """Buckets of the largest table that a view accepts."""
        return _ROOM * max(self.entries_most, self.expected_entries)


def index_shape(plan: Plan) -> IndexShape:
    """The shape that a plan prescribes."""
    return IndexShape(
        shards=plan.shards,
        tables=plan.tables,
        value_bits=plan.index.value_bits,
        expected_entries=plan.index.expected_entries,
        layout=plan.index.layout,
        entries_most=worker_slots(plan.index.value_bits) * plan.worker_shard_entries_max,
    )


@dataclass(frozen=True, slots=True)
class TableSize:
    """Size of one table: the three numbers that the hash functions range over, and what a bucket takes."""

    buckets: int
    nodes_a: int
    nodes_b: int
    layout: Layout

    @property
    def slots(self) -> int:
        """Slots for entries."""
        return SLOTS * self.buckets

    @property
    def doubled(self) -> "TableSize":
        """Twice the slots and nodes: bucket b becomes 2b and 2b+1, and so do nodes."""
        return TableSize(2 * self.buckets, 2 * self.nodes_a, 2 * self.nodes_b, self.layout)

    @property
    def is_addressable(self) -> bool:
        """Whether a word of a patch can name each slot and node."""
        least = min(self.buckets, self.nodes_a, self.nodes_b)
        return least > 0 and self.nodes < NODES_MOST and self.slots <= 1 << 32

    @property
    def nodes(self) -> int:
        """Nodes of the Othello, A and B."""
        return self.nodes_a + self.nodes_b

    @property
    def value_offset(self) -> int:
        """Words of Othello bits, whole lines: where the buckets begin."""
        return self.layout.othello_words(self.nodes)

    @property
    def words(self) -> int:
        """Words of the image, whole lines."""
        return self.value_offset + self.layout.bucket_words(self.buckets)


def table_size(entries: int, layout: Layout) -> TableSize:
    """Size of a table for an expected number of entries: A = 4/3 B, B = slots, buckets in threes."""
    threes = max(1, -(-int(entries / _FILL + 1) // (3 * SLOTS)))
    slots = 3 * SLOTS * threes
    return TableSize(
        buckets=3 * threes,
        nodes_a=max(_LEAST_NODES, -(-4 * slots // 3)),
        nodes_b=max(_LEAST_NODES, slots),
        layout=layout,
    )


def size_of(row: U64, layout: Layout) -> TableSize:
    """The size that a row describes."""
    return TableSize(int(row[BUCKETS]), int(row[NODES_A]), int(row[NODES_B]), layout)
