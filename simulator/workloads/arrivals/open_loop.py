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

    def __init__(
        self, workload: Workload, times: ArrivalTimes, *, count: int | None, settle_s: float = 0.0
    ) -> None:
        """Start the conversations of `settle_s` seconds before the run, whose requests are not given out.

        Without that all requests of a run's beginning would be first turns, and so shorter than later ones.
        """
        self.label = f"{workload.label}, {times.label}"
        self._workload = workload
        self._times = times
        self._count = count
        self._made = 0
        self._serial = 0
        self._due: list[tuple[int, int, Conversation]] = []
        self._starts_us = int(1e6 * settle_s)
        self._arrives_us = times.next_us() - self._starts_us
        while self._arrives_us < 0 and self._ask(-1) is not None:
            pass

    def next(self) -> Request | None:
        """See `RequestSource`."""
        if self._made == self._count:
            return None
        request = self._ask(self._made)
        self._made += 1
        return request

    def _ask(self, id_: int) -> Request | None:
        due = self._due
        turn = None
        if not due or due[0][0] > self._arrives_us:
            turn = self._workload.opening(id_, self._arrives_us)
        if turn is None:
            if not due:
                return None
            due_us, _, conversation = heappop(due)
            turn = conversation.turn(id_, max(self._arrives_us, due_us))
        request = turn.request
        if turn.rest is not None:
            answered_us = request.arrives_us + ANSWER_US_PER_TOKEN * len(request.answer)
            self._serial += 1
            heappush(due, (answered_us + turn.rest.pause_us, self._serial, turn.rest))
        self._arrives_us = self._times.next_us() - self._starts_us
        return request

    def ended(self, request: Request, now_us: int) -> Request | None:
        """See `RequestSource`: nothing waits for an end."""
        return None
