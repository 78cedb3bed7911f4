"""Open loop: requests arrive whether or not those before are answered."""

from heapq import heappop, heappush
from typing import Final

from simulator.request import Request
from simulator.workloads.arrivals.times import ArrivalTimes
from simulator.workloads.workload import Conversation, Workload

ANSWER_US_PER_TOKEN: Final = 12_000
"""A conversation's next turn waits for the answer as if it took so long: what an A100 takes at low load. In
an open loop a slow fleet slows nobody down, so that every policy gets the same requests at the same
instants."""


class OpenLoop:
    """Fills given instants: with the next turn of the conversation that is due longest, else with a new one.

    So arrivals follow their process exactly, whatever the conversations' lengths and pauses, and later turns
    take their natural share. A `RequestSource`.
    """

    def __init__(self, workload: Workload, times: ArrivalTimes, count: int | None) -> None:
        self.label = f"{workload.label}, {times.label}"
        self._workload = workload
        self._times = times
        self._count = count
        self._made = 0
        self._due: list[tuple[int, int, Conversation]] = []

    def next(self) -> Request | None:
        """See `RequestSource`."""
        if self._made == self._count:
            return None
        arrives_us = self._times.next_us()
        turn = None
        if not self._due or self._due[0][0] > arrives_us:
            turn = self._workload.opening(self._made, arrives_us)
        if turn is None:
            if not self._due:
                return None
            due_us, _, conversation = heappop(self._due)
            turn = conversation.turn(self._made, max(arrives_us, due_us))
        request = turn.request
        if turn.rest is not None:
            answered_us = request.arrives_us + ANSWER_US_PER_TOKEN * len(request.answer)
            heappush(self._due, (answered_us + turn.rest.pause_us, self._made, turn.rest))
        self._made += 1
        return request

    def ended(self, request: Request, now_us: int) -> Request | None:
        """See `RequestSource`: nothing waits for an end."""
        return None
