"""The writer: the tables of one shard, kept by its maintenance unit (paper 3.4)."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import KVCompassError, ProtocolError
from kvcompass.index.frozen_entries import FrozenEntries
from kvcompass.index.frozen_shard import FrozenShard
from kvcompass.index.image_bytes import Image, digest_of
from kvcompass.index.merged_keys import all_values
from kvcompass.index.patches import Patches, PatchRun
from kvcompass.index.shape import IndexShape, table_size
from kvcompass.index.table_writer import GROW_AT, OUT_WORDS, TableWriter
from kvcompass.kernels.state import FLIPS, HELD, HOLDINGS_DIGEST, MOVES, PINNED, PINNED_EVER, new_scratch
from kvcompass.tier import Tier

_KEY: Final = np.dtype(np.uint64)
_TIER: Final = np.dtype(np.uint8)
_TIERS: Final = bytes([Tier.NONE, Tier.VRAM, Tier.DRAM])


class ShardTables:
    """Every key of one shard: what a view holds (the images) and what only the writer needs (keys, graph).

    All calls mutate in place. A table that fills doubles while it takes edits: each edit does a part of that
    work, and `step` does the rest when there are no edits. `load`, `holdings` and `snapshot` cost as much as
    the table is large, and so does an edit of a worker that is being cleared; all others a few ms at most. A
    unit calls none of the four.
    """

    def __init__(self, shape: IndexShape, shard: int, *, random_seed: int, grow_at: float = GROW_AT) -> None:
        """`grow_at`: the occupancy at which a table begins to double."""
        assert 0 <= shard < shape.shards
        self.shape = shape
        self.shard: Final = shard
        self._random_seed = random_seed
        self._salts = 0
        self._grow_at = grow_at
        self._scratch = new_scratch(), np.zeros(OUT_WORDS, np.uint32)
        self._tables = [self._empty_table(table) for table in range(shape.tables)]
        self._table_count = shape.tables
        self._worker_slots = shape.worker_slots
        self._busy: set[int] = set()
        """Tables that grow, shrink or are rid of something: kept, for whoever edits asks each time."""
        self._growths = 0
        self._growths_noted = [0] * shape.tables

    @property
    def entries(self) -> int:
        """Keys in all tables of the shard."""
        return sum(table.entries for table in self._tables)

    @property
    def slots(self) -> int:
        """Slots in all tables; entries / slots is the true occupancy."""
        return sum(table.slots for table in self._tables)

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
    def rebuilds(self) -> int:
        """Tables built anew since the start; each needs a snapshot."""
        return sum(table.rebuilds for table in self._tables)

    @property
    def growths(self) -> int:
        """Tables doubled in place since the start."""
        return self._growths

    @property
    def shrinks(self) -> int:
        """Tables built anew at a smaller size since the start; each needs a snapshot."""
        return sum(table.shrinks for table in self._tables)

    @property
    def is_growing(self) -> bool:
        """A table is being doubled: a snapshot would not tell all, and `step` has work."""
        return any(table.is_growing for table in self._tables)

    @property
    def image_bits(self) -> int:
        """Bits of what a view holds of this shard."""
        return sum(8 * table.table.words.nbytes for table in self._tables)

    def open_tables(self, tables: int) -> Patches:
        """See that there are so many tables; those that are added are empty.

        Views learn of a table by a snapshot, so that adding some is a rebuild; else nothing is changed.
        """
        run = PatchRun()
        if tables > self.shape.tables:
            self._tables += [self._empty_table(table) for table in range(self.shape.tables, tables)]
            self._growths_noted += [0] * (tables - self.shape.tables)
            self.shape = replace(self.shape, tables=tables)
            self._table_count = tables
            run.restart()
        return run.patches()

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
        keys, tiers = self._checked(keys, table, slot, tiers)
        run = PatchRun()
        self._tables[table].edit(keys, int(slot), tiers, run)
        self._note(table)
        return run.patches()

    def load(self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]) -> Patches:
        """Do what `edit` does by building the table anew: a rebuild, in one call of about 0.3 us a key."""
        keys, tiers = self._checked(keys, table, slot, tiers)
        run = PatchRun()
        self._tables[table].load(keys, int(slot), tiers, run)
        self._note(table)
        return run.patches()

    def begin_report(self, table: int, slot: int) -> None:
        """A worker's full report begins: `edit` it to hold what it names, then `end_report`. O(slots / 64).

        A report that was open is forgotten: what it was edited to hold may be withdrawn like the rest.
        """
        self._check_worker(table, slot)
        self._tables[table].begin_report(int(slot))
        self._note(table)

    def end_report(self, table: int, slot: int) -> None:
        """All of an open report was edited: have `step` withdraw what else the worker holds. O(1)."""
        self._tables[table].end_report(int(slot))
        self._note(table)

    def drop_report(self, table: int, slot: int) -> None:
        """A report goes no further, if one is open: what was edited stays, nothing is withdrawn. O(1)."""
        self._tables[table].reports.pop(slot, None)
        self._note(table)

    def is_reporting(self, table: int, slot: int) -> bool:
        """A report is open, or has ended and there is more to withdraw."""
        return slot in self._tables[table].reports

    def clear_worker(self, table: int, slot: int) -> None:
        """Have `step` withdraw a worker everywhere. `holdings` are none from now on. O(1)."""
        self._check_worker(table, slot)
        self._tables[table].begin_clearing(int(slot))
        self._note(table)

    def is_clearing(self, table: int, slot: int) -> bool:
        """Keys of a worker that was cleared are still in the table; to edit it would end that first."""
        return slot in self._tables[table].clearing

    @property
    def is_busy(self) -> bool:
        """A table grows, shrinks or is rid of what a worker no longer holds: `step` has more to do."""
        return bool(self._busy)

    def step(self) -> Patches:
        """Do a part of what is left to do, 1-3 ms; `is_busy` says whether there is more."""
        run = PatchRun()
        for table in list(self._busy) or range(len(self._tables)):
            if self._tables[table].step(run):
                self._note(table)
                break
        return run.patches()

    def held(self, table: int, slot: int) -> tuple[int, int]:
        """How many keys a worker holds, and their `holdings_digest`. O(1)."""
        self._check_worker(table, slot)
        if self.is_clearing(table, slot):
            return 0, 0
        workers = self._tables[table].table.workers
        return workers.item(slot, HELD), workers.item(slot, HOLDINGS_DIGEST)

    def holdings(self, table: int, slot: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Keys and tiers of one worker, in no particular order: uint64[n], uint8[n]. Costs a scan."""
        self._check_worker(table, slot)
        writer = self._tables[table]
        fields = (all_values(writer.table) >> np.uint64(2 * slot)) & np.uint64(3)
        held = (fields != 0) & (not self.is_clearing(table, slot))
        return writer.table.slot_key[held], fields[held].astype(np.uint8)

    def freeze(self) -> FrozenShard:
        """A snapshot, to be copied part by part: nothing may be edited then. Not while a table grows."""
        assert not self.is_growing
        return FrozenShard([Image(each.table.row, each.table.words) for each in self._tables])

    def snapshot(self) -> bytes:
        """What a view loads to be equal to these tables, at once. Not while one is growing."""
        frozen = self.freeze()
        while not frozen.is_whole:
            frozen.step()
        return frozen.read(0, frozen.size)

    def freeze_entries(self, workers: Iterable[tuple[int, int]]) -> FrozenEntries:
        """What these workers (table, slot) hold, keys and all, to be gathered part by part: nothing may be
        edited then."""
        fields = [0] * len(self._tables)
        for table, slot in workers:
            self._check_worker(table, slot)
            if not self.is_clearing(table, slot):
                fields[table] |= 3 << 2 * slot
        return FrozenEntries([each.table for each in self._tables], fields)

    def restore(self, table: int, keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        """Have a table hold these keys and values instead of what it holds, in one call of 0.3 us a key.

        No patch tells that: there are no views yet.

        Args:
            table: Which one.
            keys: uint64[n] keys of this shard.
            values: uint64[n], none of them zero, every field a tier.

        Raises:
            ProtocolError: A key is given twice; nothing is changed.
        """
        self._tables[table].restore(keys, values)
        self._note(table)

    def digest(self) -> int:
        """Digest of all images; a view that is equal has the same. Kept incrementally."""
        images = [Image(table.row, table.words) for each in self._tables for table in (each.table, each.wide)]
        return digest_of(images)

    def _empty_table(self, table: int) -> TableWriter:
        size = table_size(self.shape.expected_entries, self.shape.table_layout)
        return TableWriter(
            size,
            table,
            self._salt,
            *self._scratch,
            worker_slots=self.shape.worker_slots,
            grow_at=self._grow_at,
        )

    def _note(self, table: int) -> None:
        """A table may have become busy, or has ended what it was busy with."""
        writer = self._tables[table]
        if writer.is_busy:
            self._busy.add(table)
        else:
            self._busy.discard(table)
        self._growths += writer.growths - self._growths_noted[table]
        self._growths_noted[table] = writer.growths

    def _checked(
        self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        self._check_worker(table, slot)
        keys = np.array(keys, _KEY)
        tiers = np.array(tiers, _TIER)
        if keys.ndim != 1 or keys.shape != tiers.shape:
            raise ProtocolError(f"{keys.size} keys came with {tiers.size} tiers", field="tiers")
        unknown = tiers.tobytes().translate(None, _TIERS)
        if unknown:
            raise ProtocolError(f"tier {max(unknown)} does not exist", field="tiers")
        return keys, tiers

    def _count(self, column: int) -> int:
        return sum(int(table.table.counts[column]) for table in self._tables)

    def _salt(self) -> int:
        self._salts += 1
        return int(
            np.random.SeedSequence((self._random_seed, self.shard, self._salts)).generate_state(1, np.uint64)[
                0
            ]
        )

    def _check_worker(self, table: int, slot: int) -> None:
        if not (0 <= table < self._table_count and 0 <= slot < self._worker_slots):
            raise KVCompassError(
                f"table {table}, slot {slot} is outside {self.shape.tables} tables of"
                f" {self.shape.worker_slots} slots; give the worker another in the plan",
                field="worker.slot",
            )
