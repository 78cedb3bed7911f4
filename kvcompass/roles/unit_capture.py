"""A unit's own snapshot while it is made: its tables as they were when it began."""

from collections.abc import Iterator

from kvcompass.roles.shard_writer import FrozenEntries
from kvcompass.roles.unit_snapshot_bytes import SnapshotHead, bytes_of


class UnitCapture:
    """What a unit holds at one moment. The unit edits nothing until it is whole; then it is a copy."""

    def __init__(self, head: SnapshotHead, entries: FrozenEntries) -> None:
        """Both begin at the same moment."""
        self.head = head
        self._entries = entries

    @property
    def is_whole(self) -> bool:
        """All is copied."""
        return self._entries.is_whole

    def step(self) -> None:
        """Copies the next part, about 1 ms."""
        self._entries.step()

    def parts(self) -> Iterator[bytes]:
        """The snapshot's bytes, once it is whole; from any thread."""
        return bytes_of(self.head, self._entries.tables())
