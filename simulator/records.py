"""What became of every request, in columns that grow with the run: about 100 bytes a request."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

_FIRST_ROWS: Final = 1 << 14

COLUMNS: Final = {
    "region": np.int32,
    "worker": np.int32,
    "tenant": np.int32,
    "arrived_us": np.int64,
    "submitted_us": np.int64,
    "first_token_us": np.int64,
    "finished_us": np.int64,
    "prompt_tokens": np.int32,
    "cached_tokens": np.int32,
    "cached_host_tokens": np.int32,
    "claimed_tokens": np.int32,
    "answer_tokens": np.int32,
    "attempts": np.int32,
}
"""Times at the origin edge, but for `submitted_us`, when the engine took the request. `worker` is -1 and the
later times are 0 where it failed. `cached_host_tokens` are part of `cached_tokens`."""


class Records:
    """Columns by request id: `rows` requests have arrived, `done` of them have ended, `failed` badly."""

    def __init__(self) -> None:
        self.rows = 0
        self.done = 0
        self.failed = 0
        self._columns = {name: np.zeros(_FIRST_ROWS, dtype) for name, dtype in COLUMNS.items()}

    def column(self, name: str) -> NDArray[np.int64]:
        """A copy of one column of all requests so far, as int64[rows]."""
        return self._columns[name][: self.rows].astype(np.int64)

    def arrived(self, row: int, **values: int) -> None:
        """A request has come. Ids count from 0 without holes, though they may come in another order."""
        while row >= len(self._columns["region"]):
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate((column, np.zeros_like(column)))
        self.rows = max(self.rows, row + 1)
        self.write(row, worker=-1, **values)

    def write(self, row: int, **values: int) -> None:
        """Fill in more of a request."""
        for name, value in values.items():
            self._columns[name][row] = value
