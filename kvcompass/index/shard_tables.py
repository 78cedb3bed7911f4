"""The writer: the tables of one shard, kept by its maintenance unit (paper 3.4)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import KVCompassError, ProtocolError
from kvcompass.index.image_bytes import Image, digest_of, encode_images, new_image
from kvcompass.index.patches import Patches
from kvcompass.index.shape import IndexShape, TableSize, size_of, table_size
from kvcompass.kernels.arrays import U64, Int
from kvcompass.kernels.buckets import copy_values
from kvcompass.kernels.patch_records import CLEAR_WORKER
from kvcompass.kernels.state import (
    COUNTS,
    ENTRIES,
    FLIPS,
    FREE,
    MOVES,
    PIN_LIMIT,
    PINNED,
    PINNED_EVER,
    Table,
    new_scratch,
)
from kvcompass.kernels.writer import DONE, FULL, LONGEST_GROUP, clear_keys, edit_keys, load_keys

_OUT_WORDS: Final = LONGEST_GROUP + 65_536
_UNLUCKY_FILL: Final = 0.8
"""A table that refuses a key below this occupancy was unlucky: the same size with another salt will do."""
_BUILDS: Final = 24


class ShardTables:
    """Every key of one shard: what a view holds (the images) and what only the writer needs (keys, graph).

    All calls mutate in place, cost one kernel call and never block; a rebuild costs about 2 us an entry.
    """

    def __init__(self, shape: IndexShape, shard: int, *, random_seed: int) -> None:
        assert 0 <= shard < shape.shards
        self.shape: Final = shape
        self.shard: Final = shard
        self.rebuilds = 0
        """Tables built anew since the start."""
        self._random_seed = random_seed
        self._salts = 0
        self._scratch = new_scratch()
        self._out = np.zeros(_OUT_WORDS, np.uint32)
        size = table_size(shape.expected_entries, shape.table_layout)
        self._tables = [new_table(size, table, self._salt()) for table in range(shape.tables)]

    @property
    def entries(self) -> int:
        """Keys in all tables of the shard."""
        return self._count(ENTRIES)

    @property
    def slots(self) -> int:
        """Slots in all tables; entries / slots is the true occupancy."""
        return sum(table.slot_entry.size for table in self._tables)

    @property
    def pinned(self) -> int:
        """Othello edges pinned now, in all tables."""
        return self._count(PINNED)

    @property
    def pinned_ever(self) -> int:
        """Othello edges pinned since the start."""
        return self._count(PINNED_EVER)

    @property
    def moves(self) -> int:
        """Keys moved between their buckets since the start."""
        return self._count(MOVES)

    @property
    def flips(self) -> int:
        """Othello bits flipped since the start."""
        return self._count(FLIPS)

    @property
    def image_bits(self) -> int:
        """Bits of what a view holds of this shard."""
        return sum(8 * table.words.nbytes for table in self._tables)

    def edit(self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]) -> Patches:
        """Set one worker's tier at each key, in order; 0 withdraws it. What is already so yields no group.

        Args:
            keys: uint64[n] keys of this shard.
            table: The worker's table.
            slot: The worker's slot in it.
            tiers: uint8[n] of 0, 1 (VRAM), 2 (DRAM).

        Raises:
            ProtocolError: An array does not fit the other, or a tier is none; nothing is changed.
        """
        self._check_worker(table, slot)
        keys = np.array(keys, np.uint64)
        tiers = np.array(tiers, np.uint8)
        if keys.ndim != 1 or keys.shape != tiers.shape:
            raise ProtocolError(f"{keys.size} keys came with {tiers.size} tiers", field="tiers")
        if tiers.size and int(tiers.max()) > 2:
            raise ProtocolError(f"tier {int(tiers.max())} does not exist", field="tiers")
        parts: list[bytes] = []
        start: Int = 0
        groups: Int = 0
        rebuilt = False
        while True:
            start, end, more, status = edit_keys(
                *self._tables[table], *self._scratch, keys, tiers, start, int(table), int(slot), self._out, 0
            )
            groups += more
            if status == FULL:
                self._rebuild(table)
                rebuilt = True
            elif not rebuilt:
                parts.append(self._out[:end].tobytes())
            if status == DONE:
                break
        if rebuilt:
            return Patches(b"", 1, rebuilt=True)
        return Patches(b"".join(parts), int(groups))

    def clear_worker(self, table: int, slot: int) -> Patches:
        """Withdraw a worker everywhere by one scan of its table; one group, also when it held nothing."""
        self._check_worker(table, slot)
        clear_keys(*self._tables[table], *self._scratch, int(slot))
        group = np.array([4, 1, CLEAR_WORKER | table << 8, slot], "<u4")
        return Patches(group.tobytes(), 1)

    def holdings(self, table: int, slot: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Keys and tiers of one worker, in no particular order: uint64[n], uint8[n]. Costs a scan."""
        self._check_worker(table, slot)
        state = self._tables[table]
        fields = (_values(state) >> np.uint64(2 * slot)) & np.uint64(3)
        held = fields != 0
        return state.slot_key[held], fields[held].astype(np.uint8)

    def snapshot(self) -> bytes:
        """What a view loads to be equal to these tables."""
        return encode_images([Image(table.row, table.words) for table in self._tables])

    def digest(self) -> int:
        """Digest of all images; a view that is equal has the same. Kept incrementally."""
        return digest_of([Image(table.row, table.words) for table in self._tables])

    def _rebuild(self, table: int) -> None:
        old = self._tables[table]
        held = old.slot_entry != 0
        keys, values = old.slot_key[held], _values(old)[held]
        size = size_of(old.row, self.shape.table_layout)
        grow = keys.size >= _UNLUCKY_FILL * size.slots
        for _ in range(_BUILDS):
            if grow:
                size = size.doubled
            new = new_table(size, table, self._salt())
            self.rebuilds += 1
            if load_keys(*new, *self._scratch, keys, values) == keys.size:
                for ever in (PINNED_EVER, MOVES, FLIPS):
                    new.counts[ever] += old.counts[ever]
                self._tables[table] = new
                return
            grow = True
        raise AssertionError("a table half empty refused a key again and again")

    def _count(self, column: int) -> int:
        return sum(int(table.counts[column]) for table in self._tables)

    def _salt(self) -> int:
        self._salts += 1
        return int(
            np.random.SeedSequence((self._random_seed, self.shard, self._salts)).generate_state(1, np.uint64)[
                0
            ]
        )

    def _check_worker(self, table: int, slot: int) -> None:
        if not (0 <= table < self.shape.tables and 0 <= slot < self.shape.worker_slots):
            raise KVCompassError(
                f"table {table}, slot {slot} is outside {self.shape.tables} tables of"
                f" {self.shape.worker_slots} slots; give the worker another in the plan",
                field="worker.slot",
            )


def new_table(size: TableSize, table: int, salt: int) -> Table:
    """An empty table."""
    image = new_image(size, table, salt)
    counts = np.zeros(COUNTS, np.int64)
    counts[FREE] = size.slots
    return Table(
        words=image.words,
        row=image.row,
        slot_key=np.zeros(size.slots, np.uint64),
        slot_entry=np.zeros(size.slots, np.uint32),
        edges=np.zeros((size.slots, 4), np.uint32),
        heads=np.zeros(size.nodes_a + size.nodes_b, np.uint32),
        free=np.arange(size.slots, dtype=np.uint32)[::-1].copy(),
        pins=np.zeros(PIN_LIMIT, np.uint32),
        counts=counts,
    )


def _values(table: Table) -> U64:
    """Values by position (4 * bucket + slot), a copy."""
    values = np.empty(table.slot_key.size, np.uint64)
    copy_values(table.words, table.row, values)
    return values
