"""How many tables an index has and how large they are."""

from dataclasses import dataclass
from typing import Final

from kvcompass.errors import KVCompassError
from kvcompass.plan.model import Plan, worker_slots

_FILL: Final = 0.85
"""Occupancy at the expected number of entries. Above about 0.95 inserts get slow and then fail."""
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

    def __post_init__(self) -> None:
        if self.value_bits != 32:
            raise KVCompassError(
                f"value_bits = {self.value_bits} is not available; set value_bits = 32 (16 workers a table)",
                field="index.value_bits",
            )
        if self.shards < 1 or self.tables < 1 or self.expected_entries < 1:
            raise KVCompassError(
                f"an index needs at least one shard, table and expected entry, got {self}", field="index"
            )

    @property
    def worker_slots(self) -> int:
        """Workers a table has fields for."""
        return worker_slots(self.value_bits)


def index_shape(plan: Plan) -> IndexShape:
    """The shape that a plan prescribes."""
    return IndexShape(
        shards=plan.shards,
        tables=plan.tables,
        value_bits=plan.index.value_bits,
        expected_entries=plan.index.expected_entries,
    )


@dataclass(frozen=True, slots=True)
class TableSize:
    """Size of one table: the three numbers that the hash functions range over."""

    buckets: int
    nodes_a: int
    nodes_b: int

    @property
    def slots(self) -> int:
        """Slots for entries."""
        return 4 * self.buckets

    @property
    def doubled(self) -> "TableSize":
        """Twice the slots and nodes: bucket b becomes 2b and 2b+1, and so do nodes."""
        return TableSize(2 * self.buckets, 2 * self.nodes_a, 2 * self.nodes_b)

    @property
    def line_offset(self) -> int:
        """Words of Othello bits, padded to a line."""
        return -(-(self.nodes_a + self.nodes_b) // 512) * 16

    @property
    def words(self) -> int:
        """uint32 words of the image."""
        return self.line_offset + -(-self.buckets // 3) * 16


def table_size(entries: int) -> TableSize:
    """Size of a table for an expected number of entries: whole lines, A = 4/3 B, B = slots."""
    lines = max(1, -(-int(entries / _FILL + 1) // 12))
    slots = 12 * lines
    return TableSize(
        buckets=3 * lines, nodes_a=max(_LEAST_NODES, -(-4 * slots // 3)), nodes_b=max(_LEAST_NODES, slots)
    )
