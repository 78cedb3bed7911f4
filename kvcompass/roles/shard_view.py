"""What an index follower needs of the view that it writes."""

from typing import Protocol


class Applied(Protocol):
    """What became of a run of patch groups (`kvcompass.index.ApplyResult`)."""

    @property
    def applied(self) -> int:
        """Groups applied."""
        ...

    @property
    def refused_old(self) -> int:
        """Groups at or below the applied sequence, refused."""
        ...

    @property
    def gap(self) -> bool:
        """Groups are missing before the first; nothing was applied."""
        ...


class ShardView(Protocol):
    """The view (`kvcompass.index.IndexView`)."""

    def begin_snapshot(self, shard: int) -> None:
        """A snapshot comes in parts. Until its end the shard is read and patched as it is."""
        ...

    def add_snapshot(self, shard: int, data: bytes) -> None:
        """The next part. Errors: `ProtocolError`, and the snapshot is dropped."""
        ...

    def drop_snapshot(self, shard: int) -> None:
        """Forgets a snapshot that comes in parts and will not be whole, if one is under way."""
        ...

    def forget(self, shard: int) -> None:
        """The shard is ABSENT until its next snapshot."""
        ...

    def end_snapshot(self, shard: int, sequence: int, digest: int) -> None:
        """Replaces the shard at once. Errors: `ProtocolError` (cut, another digest); nothing changes."""
        ...

    def apply(self, shard: int, first_sequence: int, count: int, payload: bytes) -> Applied:
        """Applies the groups above the applied sequence. Errors: `ProtocolError`, and nothing is applied."""
        ...

    def digest(self, shard: int) -> int:
        """Of the shard as it is."""
        ...

    def applied_sequence(self, shard: int) -> int:
        """Newest group in the shard."""
        ...
