"""What a maintenance unit needs of the tables of its shard."""

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
    def rebuilt(self) -> bool:
        """The table was rebuilt: no patch can express it, views need a snapshot."""
        ...


class ShardWriter(Protocol):
    """The tables of one shard (`kvcompass.index.ShardTables`)."""

    @property
    def entries(self) -> int:
        """Keys held by any worker."""
        ...

    def edit(
        self, keys: NDArray[np.uint64], table: int, slot: int, tiers: NDArray[np.uint8]
    ) -> EncodedPatches:
        """Sets one worker's tier at each key, in order; tier 0 removes. Idempotent."""
        ...

    def clear_worker(self, table: int, slot: int) -> EncodedPatches:
        """Removes every field of one worker."""
        ...

    def holdings(self, table: int, slot: int) -> tuple[NDArray[np.uint64], NDArray[np.uint8]]:
        """Distinct keys and tiers of one worker, in any order."""
        ...

    def snapshot(self) -> bytes:
        """The whole shard as a view needs it."""
        ...

    def digest(self) -> int:
        """Equal to the digest of a view that has applied everything."""
        ...
