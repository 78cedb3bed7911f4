"""Conservation: what enters the in-flight table leaves it once, and the work that counts is exact."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvcompass.fleet.in_flight import Flight, InFlight

WORKERS = 3
LIMIT = 6
ids = st.integers(0, 11)


@dataclass
class NaiveFlight:
    worker: int
    sent_us: int
    work_us: int
    counts: bool = True


class InFlightMachine(RuleBasedStateMachine):
    """Any order of starts, first bytes, ends and reports, against a dict that is recounted every time."""

    def __init__(self) -> None:
        super().__init__()
        self.table = InFlight(WORKERS, LIMIT)
        self.naive: dict[int, NaiveFlight] = {}
        self.now_us = 0
        self.started = self.left = self.refused = 0

    @rule(
        request_id=ids,
        worker=st.integers(0, WORKERS - 1),
        work_us=st.integers(0, 10**7),
        wait=st.integers(0, 50),
    )
    def start(self, request_id: int, worker: int, work_us: int, wait: int) -> None:
        self.now_us += wait
        if request_id in self.table:
            return
        tracked = self.table.start(request_id, Flight(worker, self.now_us, work_us, 0, 0))
        assert tracked == (len(self.naive) < LIMIT)
        if tracked:
            self.started += 1
            self.naive[request_id] = NaiveFlight(worker, self.now_us, work_us)
        else:
            self.refused += 1

    @rule(request_id=ids)
    def first_byte(self, request_id: int) -> None:
        assert (self.table.first_byte(request_id, self.now_us) is None) == (request_id not in self.naive)
        if request_id in self.naive:
            self.naive[request_id].counts = False

    @rule(request_id=ids)
    def end(self, request_id: int) -> None:
        flight = self.table.end(request_id)
        assert (flight is None) == (self.naive.pop(request_id, None) is None)
        self.left += flight is not None

    @rule(worker=st.integers(0, WORKERS - 1), back=st.integers(0, 200))
    def report(self, worker: int, back: int) -> None:
        until_us = self.now_us - back
        self.table.reported(worker, until_us)
        for flight in self.naive.values():
            if flight.worker == worker and flight.sent_us <= until_us:
                flight.counts = False

    @invariant()
    def is_conserved(self) -> None:
        flights = self.naive.values()
        assert len(self.table) == len(flights) == self.started - self.left <= LIMIT
        assert self.table.untracked == self.refused
        for worker in range(WORKERS):
            own = [flight for flight in flights if flight.worker == worker]
            assert self.table.requests[worker] == len(own)
            assert self.table.work_us[worker] == sum(flight.work_us for flight in own if flight.counts)


TestInFlight = InFlightMachine.TestCase
TestInFlight.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
