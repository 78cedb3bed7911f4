"""Which of a run's requests count: warm-up, what is measured, and a cool-down under the same load."""

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from simulator.request import Request
from simulator.source import RequestSource


@dataclass(frozen=True, slots=True)
class Window:
    """Least lengths of the warm-up and of what is measured after it, each in requests and in virtual time."""

    warm_up: int
    requests: int
    warm_up_us: int = 0
    window_us: int = 0


class MeasuredSource:
    """Gives out a source's requests until every one that counts has ended. A `RequestSource`.

    Requests are taken in the order in which they arrive. Those of the warm-up do not count. Those that
    follow do, until both enough of them have arrived and enough time has passed. More arrive after them, so
    that late answers are not computed by a fleet that empties; these do not count either, and there are no
    more once the last that counts has ended, or once they have come for as long as all before them took.
    """

    def __init__(self, source: RequestSource, window: Window) -> None:
        self.label = source.label
        self._source = source
        self._window = window
        self._coming: list[tuple[int, int]] = []
        """A heap of (instant, id) of requests that were given out and have not arrived."""
        self._given_us = 0
        self._arrived = 0
        self._began: tuple[int, int] | None = None
        """Instant of the first that counts, and how many arrived before it."""
        self._closed_us: int | None = None
        """Instant of the first after those that count."""
        self._counted: list[int] = []
        self._open: set[int] = set()
        """Of those that count, which have not ended."""

    def next(self) -> Request | None:
        """See `RequestSource`. Called when the request before has arrived."""
        self._pass(self._given_us)
        if self._over(self._given_us):
            return None
        request = self._source.next()
        if request is not None:
            self._given_us = request.arrives_us
        return self._give(request)

    def ended(self, request: Request, now_us: int) -> Request | None:
        """See `RequestSource`."""
        self._pass(now_us)
        self._open.discard(request.id)
        following = self._source.ended(request, now_us)
        return None if self._over(now_us) else self._give(following)

    def counts(self, rows: int) -> NDArray[np.bool_]:
        """Which requests of a run that has ended count, bool[rows] by their ids."""
        if self._coming:
            self._pass(max(self._coming)[0])
        counts = np.zeros(rows, np.bool_)
        counts[self._counted] = True
        return counts

    def _give(self, request: Request | None) -> Request | None:
        if request is not None:
            heappush(self._coming, (request.arrives_us, request.id))
        return request

    def _over(self, now_us: int) -> bool:
        closed_us = self._closed_us
        return closed_us is not None and (not self._open or now_us >= 2 * closed_us)

    def _pass(self, now_us: int) -> None:
        """Note what has arrived."""
        while self._coming and self._coming[0][0] <= now_us:
            at_us, id_ = heappop(self._coming)
            self._arrive(at_us, id_)

    def _arrive(self, at_us: int, id_: int) -> None:
        window, place = self._window, self._arrived
        self._arrived += 1
        if self._closed_us is not None:
            return
        if self._began is None and place >= window.warm_up and at_us >= window.warm_up_us:
            self._began = (at_us, place)
        if self._began is None:
            return
        began_us, before = self._began
        if place - before >= window.requests and at_us - began_us >= window.window_us:
            self._closed_us = at_us
            return
        self._counted.append(id_)
        self._open.add(id_)
