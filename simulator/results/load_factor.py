"""Load concentration: the hottest worker's compute time over the mean of all, in a sliding window."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

WINDOW_US: Final = 30_000_000


def peak_load_factor(
    at_us: NDArray[np.int64], busy_us: NDArray[np.int64], window_us: int = WINDOW_US
) -> float | None:
    """Return the largest load factor of any worker in any window (docs/glossary.md).

    A window reaches from a sample to the first that is at least `window_us` later. None without work, or
    where no window has room in what was sampled: a shorter one would be less even, and not to be compared.

    Args:
        at_us: int64[n], ascending: when each sample was taken.
        busy_us: int64[n, workers]: compute time of every worker since its start.
        window_us: Length of a window.
    """
    ends = np.searchsorted(at_us, at_us + window_us)
    starts = np.flatnonzero(ends < len(at_us))
    done = busy_us[ends[starts]] - busy_us[starts]
    done = done[done.sum(axis=1) > 0]
    return float((done.max(axis=1) / done.mean(axis=1)).max()) if len(done) else None
