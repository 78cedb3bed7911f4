"""What one run left: a column for each thing known of its requests, and what was looked at meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.records import COLUMNS, Records

Columns = Mapping[str, NDArray[np.int64]]
"""Those of `simulator.records`, int64[requests] each."""


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """Samples of a run, at even intervals of its time."""

    at_us: NDArray[np.int64]
    """int64[n], ascending."""
    busy_us: NDArray[np.int64]
    """int64[n, workers]: compute time of every worker since the start, prefill and decode."""
    prefill_busy_us: NDArray[np.int64]
    """int64[n]: of this, time in prefill, all workers together."""
    generated: NDArray[np.int64]
    """int64[n]: tokens of answers since the start, all engines together."""
    wan_bytes: NDArray[np.int64]
    """int64[n]: sent between regions since the start."""
    reusable: NDArray[np.int64]
    """int64[m, 3]: for every so many-th arrival its id, and the longest prefix in tokens that some worker of
    its region held in that instant, and some worker elsewhere."""


def columns(records: Records) -> Columns:
    """All columns of a run."""
    return {name: records.column(name) for name in COLUMNS}
