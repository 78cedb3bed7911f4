"""The view: what an edge holds of the whole index. No keys, only what a lookup reads (paper 3.2)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import ProtocolError
from kvcompass.index.arena import Arena
from kvcompass.index.image_bytes import decode_images, digest_of, new_image
from kvcompass.index.patches import ApplyResult
from kvcompass.index.shape import IndexShape, table_size
from kvcompass.kernels.arrays import U64, Words
from kvcompass.kernels.image import BASE, DIGEST, ROW
from kvcompass.kernels.lookup import lookup_keys
from kvcompass.kernels.patch_records import apply_groups, check_groups


class IndexView:
    """All tables of all shards in one arena. One thread owns it; no call yields, so none sees half a group.

    `words`, `directory` and `present` are what the kernels read: the arena, a row a table (shard-major, as
    many rows a shard as the widest has tables) and which shards have a snapshot. A shard without one is
    ABSENT: its keys are unknown, never a "no".

    A unit whose plan is one version apart may have more tables than ours or fewer. Each shard has those of
    its snapshot: what it lacks reads as empty; what our plan does not know is kept up to date and not read.
    """

    def __init__(self, shape: IndexShape) -> None:
        self.shape: Final = shape
        self.present: Final = np.zeros(shape.shards, np.bool_)
        self._tables = [0] * shape.shards
        self._sequences = [0] * shape.shards
        self._arena = Arena(shape.table_layout)
        blank = new_image(table_size(1, shape.table_layout), 0, 0)
        self._arena.make_room(blank.words.size, [])
        self._arena.take(blank.words.size)
        self._blank = blank.row
        """The row of a table that a shard lacks: all its words are zero."""
        self.directory = np.tile(self._blank, (shape.shards * shape.tables, 1))

    @property
    def words(self) -> Words:
        """The arena. Another array after a snapshot that found no room in it."""
        return self._arena.words

    @property
    def used_bytes(self) -> int:
        """Memory of the arena."""
        return self._arena.used_bytes

    def load_snapshot(self, shard: int, data: bytes, sequence: int, digest: int) -> None:
        """Replace a shard by a snapshot that is true at `sequence`; the shard is then present.

        Costs a copy of the snapshot's tables; seldom, when one of them has grown, one of all tables.

        Raises:
            ProtocolError: The bytes are malformed or do not have this digest; the view is unchanged.
        """
        images = decode_images(data, self.shape.table_layout)
        if digest_of(images) != digest:
            raise ProtocolError(
                f"the snapshot of shard {shard} at sequence {sequence} does not have the digest it came with;"
                " ask the unit for another",
                field="digest",
            )
        self._widen(len(images))
        rows = self._rows(shard)
        stays = [
            table < self._tables[shard] and self._arena.image_words(rows[table]) == image.words.size
            for table, image in enumerate(images)
        ]
        moving = sum(image.words.size for image, stay in zip(images, stays, strict=True) if not stay)
        others = [row for other in range(self.shape.shards) if other != shard for row in self._held(other)]
        own = [rows[table] for table, stay in enumerate(stays) if stay]
        self._arena.make_room(moving, [self._blank, *others, *own])
        for table, (image, stay) in enumerate(zip(images, stays, strict=True)):
            base = int(rows[table, BASE]) if stay else self._arena.take(image.words.size)
            self.words[base : base + image.words.size] = image.words
            rows[table] = image.row
            rows[table, BASE] = base
        rows[len(images) :] = self._blank
        self._tables[shard] = len(images)
        self._sequences[shard] = sequence
        self.present[shard] = True

    def apply(self, shard: int, first_sequence: int, count: int, payload: bytes) -> ApplyResult:
        """Apply `count` consecutive patch groups, the first of them at `first_sequence`.

        Raises:
            ProtocolError: The payload is malformed; nothing is applied.
        """
        applied = self._sequences[shard]
        if not self.present[shard] or first_sequence > applied + 1:
            return ApplyResult(applied=0, refused_old=0, gap=True)
        words = np.frombuffer(payload[: len(payload) // 4 * 4], "<u4").astype(np.uint32)
        first = shard * (len(self.directory) // self.shape.shards)
        if len(payload) % 4 or not check_groups(
            words, count, self.words, self.directory, first, self._tables[shard], self.shape.worker_slots
        ):
            raise ProtocolError(
                f"malformed patches of shard {shard} from sequence {first_sequence}: resubscribe from"
                f" {applied}; if it happens again, unit and edge differ in version",
                field="patches",
            )
        old = min(count, applied + 1 - first_sequence)
        apply_groups(words, old, self.words, self.directory, first)
        self._sequences[shard] = max(applied, first_sequence + count - 1)
        return ApplyResult(applied=count - old, refused_old=old, gap=False)

    def digest(self, shard: int) -> int:
        """Digest of a shard's tables; equal to the writer's at the same sequence."""
        return int(np.bitwise_xor.reduce(self._held(shard)[:, DIGEST]))

    def applied_sequence(self, shard: int) -> int:
        """The sequence the shard is exact at; 0 before its first snapshot."""
        return self._sequences[shard]

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Values of keys in every table of their shards, uint64[n, tables]; zero where a shard is absent."""
        keys = np.array(keys, np.uint64)
        values = np.zeros((keys.size, self.shape.tables), np.uint64)
        lookup_keys(self.words, self.directory, self.present, keys, values)
        return values

    def _rows(self, shard: int) -> U64:
        """Rows of a shard, those of tables that it lacks included; writing to them writes the directory."""
        width = len(self.directory) // self.shape.shards
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
