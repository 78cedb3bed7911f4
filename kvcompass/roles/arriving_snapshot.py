"""A shard's snapshot while its chunks come: in order, all of one table, and not too large."""

from dataclasses import dataclass

from kvcompass.errors import ProtocolError
from kvcompass.roles.messages import SnapshotChunk
from kvcompass.roles.shard_view import ShardView


@dataclass(frozen=True, slots=True)
class LoadedSnapshot:
    """What a snapshot was like."""

    size: int
    """Bytes."""
    took_us: int
    """From its first chunk until its last."""


@dataclass(slots=True)
class _Partial:
    head: SnapshotChunk
    began_us: int
    chunks: int = 0
    """Accepted so far."""
    size: int = 0


class ArrivingSnapshot:
    """Owns which snapshot a shard is being sent, and how much of it the view has beside the shard."""

    def __init__(self, shard: int, view: ShardView, bytes_most: int) -> None:
        """`bytes_most`: of the largest that is accepted."""
        self._shard = shard
        self._view = view
        self._bytes_most = bytes_most
        self._partial: _Partial | None = None

    @property
    def is_under_way(self) -> bool:
        """Chunks have come, and more are to come."""
        return self._partial is not None

    def accept(self, chunk: SnapshotChunk, now_us: int) -> str:
        """Begins with a first chunk, or goes on: `add` it then, if what this returns is empty.

        Else it says what is wrong with the chunk, and the snapshot is dropped.
        """
        if chunk.chunk == 0:
            self._partial = _Partial(chunk, now_us)
            self._view.begin_snapshot(self._shard)
        partial = self._partial
        if partial is None or not _continues(partial, chunk):
            self.drop()
            return f"chunk {chunk.chunk} of {chunk.chunks} is out of place"
        partial.chunks += 1
        partial.size += len(chunk.payload)
        if partial.size > self._bytes_most:
            self.drop()
            return f"a snapshot is larger than {self._bytes_most} bytes"
        return ""

    def add(self, chunk: SnapshotChunk, now_us: int) -> LoadedSnapshot | None:
        """Gives the view an accepted chunk. After the last: what came, and nothing is under way.

        Errors: `ProtocolError` of the view, and the snapshot is dropped.
        """
        partial = self._partial
        assert partial is not None
        try:
            self._view.add_snapshot(self._shard, chunk.payload)
        except ProtocolError:
            self._partial = None
            raise
        if partial.chunks < chunk.chunks:
            return None
        self._partial = None
        return LoadedSnapshot(partial.size, now_us - partial.began_us)

    def drop(self) -> None:
        """One that was under way will not be whole."""
        if self._partial is not None:
            self._partial = None
            self._view.drop_snapshot(self._shard)


def _continues(partial: _Partial, chunk: SnapshotChunk) -> bool:
    head = partial.head
    return (
        chunk.chunk == partial.chunks
        and chunk.chunks == head.chunks
        and (chunk.unit_epoch, chunk.sequence, chunk.digest) == (head.unit_epoch, head.sequence, head.digest)
    )
