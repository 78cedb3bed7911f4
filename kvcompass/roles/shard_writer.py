"""What a maintenance unit needs of the tables of its shard."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class EncodedPatches(Protocol):
    """Patch groups that take a view from before an edit to after it."""

    @property
    def payload(self) -> bytes:
        """Packed groups, `kvcompass.index.patches`."""
        ...

    @property
    def groups(self) -> int:
        """How many; 0 when nothing changed."""
        ...

    @property
    def work(self) -> int:
        """What applying them costs a view beyond that, in groups."""
        ...

    @property
    def rebuilt(self) -> bool:
        """The table was rebuilt: no patch can express it, views need a snapshot."""
        ...


class FrozenTables(Protocol):
    """The tables of one shard at one moment (`kvcompass.index.frozen_shard`)."""

    @property
    def digest(self) -> int:
        """Of the tables."""
        ...

    @property
    def is_whole(self) -> bool:
        """All is copied: the tables may be edited again, and `size` and `read` be called."""
        ...

    @property
    def size(self) -> int:
        """Bytes of the snapshot."""
        ...

    def step(self) -> None:
        """Copies the next part, 1-2 ms."""
        ...

    def read(self, start: int, end: int) -> bytes:
        """Some bytes of the snapshot."""
        ...


class FrozenEntries(Protocol):
    """What some workers held at one moment (`kvcompass.index.frozen_entries`)."""

    @property
    def is_whole(self) -> bool:
        """All is gathered: the tables may be edited again, and `tables` be called, from any thread."""
        ...

    def step(self) -> None:
        """Gathers the next part, about 1 ms."""
        ...

    def tables(self) -> Sequence[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        """Keys and values by table, in any order. A value has the tier of slot s in bits 2s and 2s+1."""
        ...


class ShardWriter(Protocol):
    """The tables of one shard (`kvcompass.index.ShardTables`)."""

    @property
    def entries(self) -> int:
        """Keys held by any worker."""
        ...

    @property
    def is_growing(self) -> bool:
        """A table is being doubled: there is no snapshot until `step` has ended that."""
        ...

    @property
    def is_busy(self) -> bool:
        """A table grows, shrinks or is rid of what a worker no longer holds: `step` has more to do."""
        ...

    @property
    def growths(self) -> int:
        """Tables doubled in place since the start."""
        ...

    def open_tables(self, tables: int) -> EncodedPatches:
        """Sees that there are so many tables: a rebuild where some are added, empty ones."""
        ...

    def edit(
        self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]
    ) -> EncodedPatches:
        """Sets one worker's tier at each key, in order; tier 0 removes. Idempotent."""
        ...

    def begin_report(self, table: int, slot: int) -> None:
        """A worker's full report begins: `edit` it to hold what it names, then `end_report`."""
        ...

    def end_report(self, table: int, slot: int) -> None:
        """All of an open report was edited: has `step` withdraw what else the worker holds. O(1)."""
        ...

    def drop_report(self, table: int, slot: int) -> None:
        """A report goes no further, if one is open: what was edited stays, nothing is withdrawn. O(1)."""
        ...

    def is_reporting(self, table: int, slot: int) -> bool:
        """A report is open, or has ended and there is more to withdraw."""
        ...

    def clear_worker(self, table: int, slot: int) -> None:
        """Has `step` remove every field of one worker. It holds nothing from now on. O(1)."""
        ...

    def is_clearing(self, table: int, slot: int) -> bool:
        """Fields of the worker are still to be removed; to edit it now would end that first, in one go."""
        ...

    def step(self) -> EncodedPatches:
        """Does a part of what growing, shrinking, clearing and ended reports leave to do, a few ms."""
        ...

    def held(self, table: int, slot: int) -> tuple[int, int]:
        """How many keys one worker holds, and their `holdings_digest`. O(1)."""
        ...

    def holdings(self, table: int, slot: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Distinct keys and tiers of one worker, in any order. Costs a scan: for tools and tests."""
        ...

    def freeze(self) -> FrozenTables:
        """Begins to copy the whole shard; nothing may be edited until that is whole.

        Not while a table is growing.
        """
        ...

    def freeze_entries(self, workers: Iterable[tuple[int, int]]) -> FrozenEntries:
        """Begins to gather what workers (table, slot) hold; nothing may be edited until that is whole."""
        ...

    def restore(self, table: int, keys: NDArray[np.uint64], values: NDArray[np.uint64]) -> None:
        """Has a table hold exactly this, before anybody follows it. Costs as much as it is large.

        Errors: `ProtocolError` when a key is given twice.
        """
        ...

    def digest(self) -> int:
        """Equal to the digest of a view that has applied everything."""
        ...
