"""Conservation: what enters the in-flight table leaves it once, and the work that counts is exact."""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kvcompass.fleet.in_flight import Flight, InFlight
from tests.models.routing_fleets import remaining

WORKERS = 3
LIMIT = 6
ids = st.integers(0, 11)


@dataclass
class NaiveFlight:
    worker: int
    sent_us: int
    work_us: int
    unreported: bool = True
    first_byte: bool = False


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
        tracked = self.table.start(request_id, Flight(worker, self.now_us, work_us, 0, 0), begins_us=1 << 61)
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
            self.naive[request_id].first_byte = True

    @rule(request_id=ids)
    def end(self, request_id: int) -> None:
        flight = self.table.end(request_id, self.now_us)
        assert (flight is None) == (self.naive.pop(request_id, None) is None)
        self.left += flight is not None

    @rule(worker=st.integers(0, WORKERS - 1), back=st.integers(0, 200))
    def report(self, worker: int, back: int) -> None:
        until_us = self.now_us - back
        shown_us = 0
        for flight in self.naive.values():
            if flight.worker == worker and flight.sent_us <= until_us:
                shown_us += flight.work_us if flight.unreported and not flight.first_byte else 0
                flight.unreported = False
        assert self.table.reported(worker, until_us) == shown_us

    @invariant()
    def is_conserved(self) -> None:
        flights = self.naive.values()
        assert len(self.table) == len(flights) == self.started - self.left <= LIMIT
        assert self.table.untracked == self.refused
        for worker in range(WORKERS):
            own = [flight for flight in flights if flight.worker == worker]
            assert self.table.requests[worker] == len(own)
            prefills = [flight for flight in own if not flight.first_byte]
            assert self.table.unreported_us[worker] == sum(f.work_us for f in prefills if f.unreported)
            left = remaining(self.table.backlog, self.now_us)
            assert left[worker] == sum(flight.work_us for flight in prefills)


TestInFlight = InFlightMachine.TestCase
TestInFlight.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
