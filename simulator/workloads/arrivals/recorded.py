"""Requests at the instants at which they were recorded, or a multiple of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from simulator.errors import SimulationError
from simulator.request import Request
from simulator.workloads.arrivals.open_loop import ANSWER_US_PER_TOKEN
from simulator.workloads.traces.trace import Entry, Trace
from simulator.workloads.workload import Conversation, Turn


@dataclass(frozen=True, slots=True)
class Recording:
    """When a trace was recorded."""

    began_us: int
    rate_per_s: float
    """Requests a second, all turns, over its whole time."""


def measure(label: str, entries: Iterable[Entry], count: int | None) -> Recording:
    """Read a trace once for its times alone, up to `count` requests.

    Raises:
        SimulationError: It has no times, or all its requests came at once.
    """
    requests, began_us, ended_us = 0, None, 0
    for entry in entries:
        if entry.at_us is None:
            raise SimulationError(f"{label} has no times: take arrivals poisson", field="arrivals")
        began_us = entry.at_us if began_us is None else began_us
        ended_us = entry.at_us
        requests += entry.requests
        if count is not None and requests >= count:
            break
    if began_us is None or ended_us == began_us:
        message = f"{label} tells no rate: fewer than two instants; take arrivals poisson"
        raise SimulationError(message, field="arrivals")
    return Recording(began_us, 1e6 * requests / (ended_us - began_us))


class RecordedLoop:
    """Conversations begin when they were recorded to, faster or slower in a fixed ratio.

    Where a file tells of conversations and not of each request, later turns follow after their answers' usual
    time and a pause, in real time whatever the ratio. A `RequestSource`.
    """

    def __init__(self, trace: Trace, recording: Recording, rate_per_s: float, count: int | None) -> None:
        self._ratio = recording.rate_per_s / rate_per_s
        speed = "" if self._ratio == 1.0 else f" {1 / self._ratio:.3g} times as fast"
        self.label = f"{trace.label}, recorded times{speed}"
        self._trace = trace
        self._began_us = recording.began_us
        self._count = count
        self._made = 0
        self._due: list[tuple[int, int, Conversation]] = []

    def next(self) -> Request | None:
        """See `RequestSource`."""
        if self._made == self._count:
            return None
        turn = self._turn()
        if turn is None:
            return None
        request = turn.request
        if turn.rest is not None:
            answered_us = request.arrives_us + ANSWER_US_PER_TOKEN * len(request.answer)
            heappush(self._due, (answered_us + turn.rest.pause_us, self._made, turn.rest))
        self._made += 1
        return request

    def ended(self, request: Request, now_us: int) -> Request | None:
        """See `RequestSource`: nothing waits for an end."""
        return None

    def _turn(self) -> Turn | None:
        recorded_us = self._trace.due_us
        begins_us = None if recorded_us is None else int(self._ratio * (recorded_us - self._began_us))
        if self._due and (begins_us is None or self._due[0][0] <= begins_us):
            due_us, _, conversation = heappop(self._due)
            return conversation.turn(self._made, due_us)
        return None if begins_us is None else self._trace.opening(self._made, begins_us)
