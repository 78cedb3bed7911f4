"""The view: what an edge holds of the whole index. No keys, only what a lookup reads (paper 3.2)."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import ProtocolError
from kvcompass.index.arena import Arena
from kvcompass.index.frozen_shard import FrozenShard
from kvcompass.index.image_bytes import Image, new_image, new_row
from kvcompass.index.patches import ApplyResult
from kvcompass.index.shape import IndexShape, size_of, table_size
from kvcompass.index.snapshot_decoder import SnapshotDecoder
from kvcompass.kernels.arrays import U64, Int, Words
from kvcompass.kernels.buckets import copy_values
from kvcompass.kernels.image import BASE, BUCKETS, DIGEST, ROW, SALT, SLOTS, TABLE
from kvcompass.kernels.lookup import lookup_keys
from kvcompass.kernels.patch_apply import apply_groups
from kvcompass.kernels.patch_check import CHECKING, MALFORMED, SOUND, TOO_LARGE, TOO_MUCH
from kvcompass.kernels.patch_records import GROUP_HEADER, GROW_SWAP, GROW_WORDS
from kvcompass.kernels.patch_take import take_groups
from kvcompass.kernels.probes import PROBE, PROBES
from kvcompass.kernels.split import GROWTH

WORK_MOST: Final = 1 << 16
"""Records applied in one call, or what takes as long: a few ms. A unit sends a few hundred a message."""


class IndexView:
    """All tables of all shards in one arena. One thread owns it; no call yields, so none sees half a group.

    `words`, `directory` and `present` are what the kernels read: the arena, a row a table (shard-major, as
    many rows a shard as the widest has tables) and which shards have a snapshot. A shard without one is
    ABSENT: its keys are unknown, never a "no".

    A unit whose plan is one version apart may have more tables than ours or fewer. Each shard has those of
    its snapshot: what it lacks reads as empty; what our plan does not know is kept up to date and not read.
    """

    def __init__(self, shape: IndexShape) -> None:
        self.shape = shape
        self.present: Final = np.zeros(shape.shards, np.bool_)
        self._tables = [0] * shape.shards
        self._sequences = [0] * shape.shards
        self._loading: dict[int, SnapshotDecoder] = {}
        """Snapshots under way, by shard."""
        self._arena = Arena(shape.table_layout)
        blank = new_image(table_size(1, shape.table_layout), 0, 0)
        self._arena.make_room(blank.words.size, [])
        self._arena.take(blank.words.size)
        self._blank = blank.row
        """The row of a table that a shard lacks: all its words are zero."""
        self._probes = np.zeros((PROBES, PROBE), np.uint64)
        self.directory = np.tile(self._blank, (shape.shards * shape.tables, 1))
        self._wide = np.zeros_like(self.directory)
        """Rows of the tables that are laid beside others to double them; zero where none is."""
        self._growth = np.zeros((len(self.directory), GROWTH), np.int64)
        self._checking = np.zeros((shape.tables, CHECKING), np.int64)
        """Scratch of a check: a row a table."""

    @property
    def words(self) -> Words:
        """The arena. Another array after a call that found no room in it."""
        return self._arena.words

    @property
    def used_bytes(self) -> int:
        """Memory of the arena."""
        return self._arena.used_bytes

    def apply_shape(self, shape: IndexShape) -> None:
        """Read as many tables as the next version of the plan has; never fewer than now.

        Those that a shard's snapshot lacks read as empty until the next one.
        """
        tables = max(shape.tables, self.shape.tables)
        self.shape = replace(shape, tables=tables)
        self._widen(tables)

    def load_snapshot(self, shard: int, data: bytes, sequence: int, digest: int) -> None:
        """Replace a shard by a whole snapshot, at once."""
        self.begin_snapshot(shard)
        self.add_snapshot(shard, data)
        self.end_snapshot(shard, sequence, digest)

    def begin_snapshot(self, shard: int) -> None:
        """Make ready for a snapshot that arrives in parts; one that was under way is dropped."""
        self.drop_snapshot(shard)
        self._loading[shard] = SnapshotDecoder(self._arena, self.shape, self._make_room)

    def add_snapshot(self, shard: int, data: bytes) -> None:
        """Take the next bytes of a snapshot. The shard is read as it is. Costs 1.5 us a kilobyte.

        Raises:
            ProtocolError: The bytes are malformed; the snapshot is dropped.
        """
        self._arena.give_back()
        try:
            self._loading[shard].add(data)
        except ProtocolError:
            self.drop_snapshot(shard)
            raise

    def drop_snapshot(self, shard: int) -> None:
        """Forget a snapshot that is under way, if one is, and leave its memory."""
        decoder = self._loading.pop(shard, None)
        for row in decoder.rows if decoder is not None else ():
            self._arena.leave(row)

    def end_snapshot(self, shard: int, sequence: int, digest: int) -> None:
        """Replace a shard by the snapshot that was added, true at `sequence`; the shard is then present.

        Raises:
            ProtocolError: It is not whole or does not have this digest; the view is unchanged.
        """
        decoder = self._loading[shard]
        try:
            if decoder.end() != digest:
                raise ProtocolError(
                    f"the snapshot of shard {shard} at sequence {sequence} does not have the digest it came"
                    " with; ask the unit for another",
                    field="digest",
                )
        except ProtocolError:
            self.drop_snapshot(shard)
            raise
        del self._loading[shard]
        self._widen(len(decoder.rows))
        rows, first = self._rows(shard), shard * self._width
        for row in (*self._held(shard), *self._wide[first : first + self._width]):
            if row[BUCKETS]:
                self._arena.leave(row)
        self._wide[first : first + self._width] = 0
        self._growth[first : first + self._width] = 0
        rows[: len(decoder.rows)] = decoder.rows
        rows[len(decoder.rows) :] = self._blank
        self._tables[shard] = len(decoder.rows)
        self._sequences[shard] = sequence
        self.present[shard] = True

    def apply(self, shard: int, first_sequence: int, count: int, payload: bytes) -> ApplyResult:
        """Apply `count` consecutive patch groups, the first of them at `first_sequence`.

        Raises:
            ProtocolError: The payload is malformed, takes too long to apply or makes a table too large;
                nothing is applied. Or there is no memory to double a table, and whole groups before that
                are applied; the shard then needs a snapshot.
        """
        self._arena.give_back()
        applied = self._sequences[shard]
        if not self.present[shard] or first_sequence > applied + 1:
            return ApplyResult(applied=0, refused_old=0, gap=True)
        if len(payload) % 4:
            raise _refused(MALFORMED, shard, first_sequence, applied)
        words = np.frombuffer(payload, "<u4").astype(np.uint32)
        first, old = shard * self._width, min(count, applied + 1 - first_sequence)
        found, at = take_groups(
            words,
            count,
            old,
            self.words,
            self.directory,
            first,
            self._tables[shard],
            self.shape.worker_slots,
            self._wide,
            self._growth,
            self._checking,
            self.shape.buckets_most,
            WORK_MOST,
        )
        if found != SOUND:
            raise _refused(found, shard, first_sequence, applied)
        while at != words.size:
            record = at + GROUP_HEADER
            try:
                self._grow(first + (int(words[record]) >> 8), int(words[record + 1]))
            except MemoryError:
                raise ProtocolError(
                    f"no memory to double a table of shard {shard}; give the edge more", field="patches"
                ) from None
            at = record + GROW_WORDS
            at = apply_groups(words, at, 0, self.words, self.directory, first, self._wide, self._growth)
        self._sequences[shard] = max(applied, first_sequence + count - 1)
        return ApplyResult(applied=count - old, refused_old=old, gap=False)

    def forget(self, shard: int) -> None:
        """Have a shard be ABSENT until its next snapshot. O(1): its memory is left then."""
        self.present[shard] = False

    def has_fields(self, shard: int, table: int, slot: int) -> bool:
        """Whether any slot of a table has a tier in a worker's field. A scan: 2-3 ms for a million slots."""
        if not self.present[shard] or table >= self._tables[shard]:
            return False
        field = np.uint64(3 << 2 * slot)
        at = shard * self._width + table
        for row in (self.directory[at], self._wide[at]):
            if row[BUCKETS]:
                values = np.empty(SLOTS * int(row[BUCKETS]), np.uint64)
                copy_values(self.words, row, values)
                if (values & field).any():
                    return True
        return False

    def digest(self, shard: int) -> int:
        """Digest of a shard's tables; equal to the writer's at the same sequence."""
        wide = self._wide[shard * self._width : (shard + 1) * self._width, DIGEST]
        return int(np.bitwise_xor.reduce(self._held(shard)[:, DIGEST]) ^ np.bitwise_xor.reduce(wide))

    def is_growing(self, shard: int) -> bool:
        """A table of the shard is being doubled: there is no copy of it until that is over."""
        return bool(self._wide[shard * self._width : (shard + 1) * self._width, BUCKETS].any())

    def freeze(self, shard: int) -> FrozenShard:
        """A snapshot of a present shard, to be copied part by part: it must not change until that is whole.

        Other shards may, even if all images must move for them: what they were moved from stays as it is.
        """
        assert self.present[shard] and not self.is_growing(shard)
        images = []
        for row in self._held(shard):
            base = int(row[BASE])
            images.append(Image(row.copy(), self.words[base : base + self._arena.image_words(row)]))
        return FrozenShard(images)

    def applied_sequence(self, shard: int) -> int:
        """The sequence the shard is exact at; 0 before its first snapshot."""
        return self._sequences[shard]

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Values of keys in every table of their shards, uint64[n, tables]; zero where a shard is absent."""
        keys = np.array(keys, np.uint64)
        values = np.empty((keys.size, self.shape.tables), np.uint64)
        lookup_keys(self.words, self.directory, self.present, self._probes, keys, values)
        return values

    @property
    def _width(self) -> int:
        """Rows a shard."""
        return len(self.directory) // self.shape.shards

    def _make_room(self, size: int) -> None:
        """See that the arena has room for `size` words beside all images that are read or under way."""
        if self._arena.has_room(size):
            return
        held = [row for shard in range(self.shape.shards) for row in self._held(shard)]
        growing = [row for row in self._wide if row[BUCKETS]]
        loading = [row for decoder in self._loading.values() for row in decoder.rows]
        self._arena.make_room(size, [self._blank, *held, *growing, *loading])

    def _grow(self, index: int, step: int) -> None:
        """Begin to double the table of a row, or let the doubled one take its place."""
        row = self.directory[index]
        if step == GROW_SWAP:
            self._arena.leave(row)
            row[:] = self._wide[index]
            self._wide[index] = 0
            self._growth[index] = 0
            return
        size = size_of(row, self.shape.table_layout).doubled
        self._make_room(size.words)
        self._wide[index] = new_row(size, int(row[TABLE]), int(row[SALT]))
        self._wide[index, BASE] = self._arena.take(size.words)

    def _rows(self, shard: int) -> U64:
        """Rows of a shard, those of tables that it lacks included; writing to them writes the directory."""
        width = self._width
        return self.directory[shard * width : (shard + 1) * width]

    def _held(self, shard: int) -> U64:
        """Rows of the tables that a shard has."""
        return self._rows(shard)[: self._tables[shard]]

    def _widen(self, tables: int) -> None:
        """See that each shard has rows for so many tables."""
        width = len(self.directory) // self.shape.shards
        if tables > width:
            old = self.directory.reshape(self.shape.shards, width, ROW)
            blank = np.tile(self._blank, (self.shape.shards, tables - width, 1))
            self.directory = np.concatenate((old, blank), axis=1).reshape(-1, ROW)
            self._wide = _widened(self._wide, self.shape.shards, tables)
            self._growth = _widened(self._growth, self.shape.shards, tables)
            self._checking = np.zeros((tables, CHECKING), np.int64)


_REFUSED: Final = {
    MALFORMED: "malformed patches",
    TOO_MUCH: f"patches that take as long as {WORK_MOST} changes, more than one message may,",
    TOO_LARGE: "patches that double a table beyond what the plan's workers can fill",
}
"""What is wrong with patches."""


def _refused(found: Int, shard: int, first_sequence: int, applied: int) -> ProtocolError:
    return ProtocolError(
        f"{_REFUSED[int(found)]} of shard {shard} from sequence {first_sequence}: resubscribe from {applied};"
        " if it happens again, unit and edge differ in version or plan",
        field="patches",
    )


def _widened(rows: NDArray[Any], shards: int, tables: int) -> NDArray[Any]:
    """Rows of as many tables a shard, zero where there were none."""
    each = rows.reshape(shards, -1, rows.shape[1])
    return np.pad(each, ((0, 0), (0, tables - each.shape[1]), (0, 0))).reshape(-1, rows.shape[1])
