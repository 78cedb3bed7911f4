"""What of a worker's holdings its units are told."""

from typing import Final, Protocol

import numpy as np
import numpy.typing as npt


class ToldHoldings(Protocol):
    """What is registered of a worker, by shard."""

    def digest(self, shard: int) -> int:
        """`holdings_digest` of what is registered in a shard. O(1)."""
        ...

    def count(self, shard: int) -> int:
        """Number of keys that it is taken over. O(1)."""
        ...

    def report(self, shard: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        """All that is registered in a shard: keys (uint64[n]) and tiers (uint8[n])."""
        ...


class _Nothing:
    """Of a worker that holds nothing."""

    def digest(self, _shard: int) -> int:
        return 0

    def count(self, _shard: int) -> int:
        return 0

    def report(self, _shard: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint8)


NOTHING_TOLD: Final[ToldHoldings] = _Nothing()
