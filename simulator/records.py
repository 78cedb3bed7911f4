"""What became of every request, in columns that grow with the run: about 100 bytes a request."""

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

COLUMNS: Final = (
    "region",
    "worker",
    "arrived_us",
    "submitted_us",
    "first_token_us",
    "finished_us",
    "prompt_tokens",
    "cached_tokens",
    "cached_host_tokens",
    "claimed_tokens",
    "answer_tokens",
    "attempts",
)
"""Times at the origin edge, but for `submitted_us`, when the engine took the request. `worker` is -1 where it
failed. `cached_host_tokens` are part of `cached_tokens`. `attempts` counts dispatches."""

_ROWS: Final = 1 << 12


class Records:
    """Columns by request id: `rows` requests have arrived, `done` of them have ended, `failed` badly."""

    def __init__(self) -> None:
        self.rows = 0
        self.done = 0
        self.failed = 0
        self.region = array("q")
        self.worker = array("q")
        self.arrived_us = array("q")
        self.submitted_us = array("q")
        self.first_token_us = array("q")
        self.finished_us = array("q")
        self.prompt_tokens = array("q")
        self.cached_tokens = array("q")
        self.cached_host_tokens = array("q")
        self.claimed_tokens = array("q")
        self.answer_tokens = array("q")
        self.attempts = array("q")
        self._columns: dict[str, array[int]] = {name: getattr(self, name) for name in COLUMNS}

    def column(self, name: str) -> NDArray[np.int64]:
        """A copy of one column of all requests so far, as int64[rows]."""
        return np.array(self._columns[name][: self.rows], np.int64)

    def arrived(self, row: int) -> None:
        """A request has come: its row exists from now on, zero but for `worker`, which is -1.

        Ids count from 0 without holes, though they may come in another order.
        """
        if row >= len(self.region):
            grown = bytes(8 * max(_ROWS, row + 1 - len(self.region)))
            for column in self._columns.values():
                column.frombytes(grown)
        if row >= self.rows:
            self.rows = row + 1
        self.worker[row] = -1
