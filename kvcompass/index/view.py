"""The view: what an edge holds of the whole index. No keys, only what a lookup reads (paper 3.2)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.errors import ProtocolError
from kvcompass.index.image_bytes import Image, aligned_words, decode_images, digest_of, new_image
from kvcompass.index.patches import ApplyResult
from kvcompass.index.shape import IndexShape, table_size
from kvcompass.kernels.image import BASE, DIGEST, ROW
from kvcompass.kernels.lookup import lookup_keys
from kvcompass.kernels.patch_records import apply_groups, check_groups


class IndexView:
    """All tables of all shards in one arena. One thread owns it; no call yields, so none sees half a group.

    `words`, `directory` and `present` are what the kernels read: the arena, a row a table (shard-major) and
    which shards have a snapshot. A shard without one is ABSENT: its keys are unknown, never a "no".
    """

    def __init__(self, shape: IndexShape) -> None:
        self.shape: Final = shape
        self.present: Final = np.zeros(shape.shards, np.bool_)
        self.directory: Final = np.zeros((shape.shards * shape.tables, ROW), np.uint64)
        self.words = aligned_words(0)
        self._sequences = [0] * shape.shards
        empty = table_size(1)
        self._lay_out([new_image(empty, row % shape.tables, 0) for row in range(shape.shards * shape.tables)])

    def load_snapshot(self, shard: int, data: bytes, sequence: int, digest: int) -> None:
        """Replace a shard by a snapshot that is true at `sequence`; the shard is then present.

        Raises:
            ProtocolError: The bytes are malformed or do not have this digest; the view is unchanged.
        """
        images = decode_images(data, self.shape.tables)
        if digest_of(images) != digest:
            raise ProtocolError(
                f"the snapshot of shard {shard} at sequence {sequence} does not have the digest it came with;"
                " ask the unit for another",
                field="digest",
            )
        first = shard * self.shape.tables
        rows = [self._image(row) for row in range(self.directory.shape[0])]
        same_sizes = all(
            image.words.size == rows[first + table].words.size for table, image in enumerate(images)
        )
        if same_sizes:
            for table, image in enumerate(images):
                base = self.directory[first + table, BASE]
                rows[first + table].words[:] = image.words
                self.directory[first + table] = image.row
                self.directory[first + table, BASE] = base
        else:
            rows[first : first + self.shape.tables] = images
            self._lay_out(rows)
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
        first = shard * self.shape.tables
        if len(payload) % 4 or not check_groups(
            words, count, self.directory, first, self.shape.tables, self.shape.worker_slots
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
        first = shard * self.shape.tables
        return int(np.bitwise_xor.reduce(self.directory[first : first + self.shape.tables, DIGEST]))

    def applied_sequence(self, shard: int) -> int:
        """The sequence the shard is exact at; 0 before its first snapshot."""
        return self._sequences[shard]

    def set_absent(self, shard: int) -> None:
        """Stop using a shard until its next snapshot."""
        self.present[shard] = False
        self._sequences[shard] = 0

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Values of keys in every table of their shards, uint64[n, tables]; zero where a shard is absent."""
        keys = np.array(keys, np.uint64)
        values = np.zeros((keys.size, self.shape.tables), np.uint64)
        lookup_keys(self.words, self.directory, self.present, self.shape.tables, keys, values)
        return values

    def _image(self, row: int) -> Image:
        base = int(self.directory[row, BASE])
        end = int(self.directory[row + 1, BASE]) if row + 1 < len(self.directory) else self.words.size
        return Image(self.directory[row].copy(), self.words[base:end])

    def _lay_out(self, images: list[Image]) -> None:
        words = aligned_words(sum(image.words.size for image in images))
        base = 0
        for row, image in enumerate(images):
            words[base : base + image.words.size] = image.words
            self.directory[row] = image.row
            self.directory[row, BASE] = base
            base += image.words.size
        self.words = words
