"""Requests this edge has sent and not seen the end of, and what their prefills add to a worker's queue."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.backlog import FOREVER_US, Backlog


@dataclass(slots=True)
class Flight:
    """One request under way."""

    worker: int
    sent_us: int
    work_us: int
    """Residual prefill, microseconds of the worker's compute."""
    claimed: int
    """match_tokens of the decision; 0 when it claimed nothing."""
    local_best_match: int
    """Longest match any worker of the origin region had when this was decided."""
    first_byte_us: int | None = None
    predicted: int = 0
    """What the worker was taken to hold of the prompt without the index saying so, tokens."""


class InFlight:
    """The table of flights, and per worker two sums of their work until the first byte (the prefill is over).

    `unreported_us` drops a flight earlier, when a report already shows it (`reported`); `backlog` keeps and
    ages it. Work is in integer microseconds, so sums are exact. At most `limit` flights; beyond it a flight
    is not tracked and counted in `untracked`.
    """

    def __init__(self, workers: int, limit: int) -> None:
        self.unreported_us: NDArray[np.int64] = np.zeros(workers, np.int64)
        """int64[W]: work that no report shows yet."""
        self.unreported_since_us: NDArray[np.int64] = np.full(workers, FOREVER_US, np.int64)
        """int64[W]: when the first of it was sent, far in the future when there is none."""
        self.backlog = Backlog(workers)
        self.requests: NDArray[np.int64] = np.zeros(workers, np.int64)
        """int64[W]: flights in the table."""
        self.untracked = 0
        self._limit = limit
        self._flights: dict[Hashable, Flight] = {}
        self._unreported: list[OrderedDict[Hashable, Flight]] = [OrderedDict() for _ in range(workers)]

    def __len__(self) -> int:
        return len(self._flights)

    def __contains__(self, request_id: Hashable) -> bool:
        return request_id in self._flights

    def grow(self, workers: int) -> None:
        """There are so many workers, no fewer than before. The arrays are others then."""
        more = workers - len(self._unreported)
        self.unreported_us = np.pad(self.unreported_us, (0, more))
        self.unreported_since_us = np.pad(self.unreported_since_us, (0, more), constant_values=FOREVER_US)
        self.requests = np.pad(self.requests, (0, more))
        self._unreported += [OrderedDict() for _ in range(more)]
        self.backlog.grow(workers)

    def start(self, request_id: Hashable, flight: Flight, begins_us: int) -> bool:
        """Enter a flight whose id is not in the table; False when the table is full.

        `begins_us`: when its prefill is expected to begin, unless own work in front of it takes longer.
        """
        assert request_id not in self._flights
        if len(self._flights) >= self._limit:
            self.untracked += 1
            return False
        self._flights[request_id] = flight
        self.requests[flight.worker] += 1
        unreported = self._unreported[flight.worker]
        if not unreported:
            self.unreported_since_us[flight.worker] = flight.sent_us
        unreported[request_id] = flight
        self.unreported_us[flight.worker] += flight.work_us
        self.backlog.add(request_id, flight.worker, flight.work_us, begins_us)
        return True

    def first_byte(self, request_id: Hashable, now_us: int) -> Flight | None:
        """The prefill is over. None when the flight is not in the table; later bytes change nothing."""
        flight = self._flights.get(request_id)
        if flight is not None and flight.first_byte_us is None:
            flight.first_byte_us = now_us
            self._uncount(request_id, flight)
            self.backlog.remove(request_id, flight.worker, now_us)
        return flight

    def end(self, request_id: Hashable, now_us: int) -> Flight | None:
        """Take a flight out, for whatever reason it ended. None when it has left already."""
        flight = self._flights.pop(request_id, None)
        if flight is not None:
            self.requests[flight.worker] -= 1
            self._uncount(request_id, flight)
            self.backlog.remove(request_id, flight.worker, now_us)
        return flight

    def reported(self, worker: int, sent_until_us: int) -> int:
        """A report shows everything sent to `worker` up to then; returns what it shows first, microseconds.

        Amortised O(1).
        """
        shown_us = 0
        unreported = self._unreported[worker]
        while unreported:
            request_id, flight = next(iter(unreported.items()))
            if flight.sent_us > sent_until_us:
                break
            self._uncount(request_id, flight)
            shown_us += flight.work_us
        return shown_us

    def _uncount(self, request_id: Hashable, flight: Flight) -> None:
        unreported = self._unreported[flight.worker]
        if unreported.pop(request_id, None) is not None:
            self.unreported_us[flight.worker] -= flight.work_us
            first = next(iter(unreported.values()), None)
            self.unreported_since_us[flight.worker] = FOREVER_US if first is None else first.sent_us
