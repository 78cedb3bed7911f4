"""The fleet as one edge sees it: arrays over the plan's workers, each with one owner, here."""

from collections.abc import Hashable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.belief import Beliefs
from kvcompass.fleet.in_flight import Flight, InFlight
from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.plan.model import Plan
from kvcompass.score import ScoreInputs

_NEVER_US = -(1 << 62)
_FOREVER_US = 1 << 62

RATE_BAND = 4.0
"""A measured prefill rate is believed within this factor of the plan's; beyond it the bound is used."""

IN_FLIGHT_LIMIT = 65_536
"""Requests an edge tracks at once; far above what one process can carry."""


class Standing(IntEnum):
    """Order in which workers are considered: a later class only when every earlier one is empty."""

    KNOWN = 0
    """Ready, with a load younger than the lease."""
    UNKNOWN = 1
    """Never reported, or not for a lease. A missing load is not a zero load, so it is used last."""
    SUSPECTED = 2
    """A connection to it has just failed."""
    OUT = 3
    """Draining or unreachable: never a candidate."""


class FleetView:
    """Queue estimates, standing and belief of every worker, seen from region `origin` (an index of the plan).

    `queue_ms[w]` is the last reported queue (own region: as reported; other regions: EWMA of weight w, paper
    3.4) plus the prefill work this edge has sent there that the report cannot show yet. A report received at
    t from a worker a round trip 2d away shows what was sent until t - 2d; what was sent later counts, until
    its first byte. For a worker of UNKNOWN load the largest known report stands in for its own.
    """

    def __init__(self, plan: Plan, origin: int, *, in_flight_limit: int = IN_FLIGHT_LIMIT) -> None:
        workers = plan.workers
        regions = {region: index for index, region in enumerate(plan.regions)}
        self.plan = plan
        self.origin = origin
        self.worker_ids = tuple(worker.id for worker in workers)
        self.region_names = tuple(worker.region for worker in workers)
        self.index_of = {worker_id: index for index, worker_id in enumerate(self.worker_ids)}
        self.region: NDArray[np.int32] = np.array([regions[w.region] for w in workers], np.int32)
        self.is_local: NDArray[np.bool_] = self.region == origin
        self.in_group: dict[str, NDArray[np.bool_]] = {
            group: np.array([w.sharing_group == group for w in workers])
            for group in {w.sharing_group for w in workers}
        }
        self.wan_ms: NDArray[np.float64] = np.array([plan.wan_ms[origin][r] for r in self.region])
        """float64[W], one way."""
        self.prefill_ms_per_token: NDArray[np.float64] = np.array([w.prefill_ms_per_token for w in workers])
        """float64[W]: measured where an agent reports it, else the plan's."""
        self.reload_ms_per_token: NDArray[np.float64] = np.array([w.reload_ms_per_token for w in workers])
        self.queue_ms: NDArray[np.float64] = np.zeros(len(workers))
        """float64[W]: the estimate; for KNOWN workers only is it more than a stand-in."""
        self.standing: NDArray[np.uint8] = np.full(len(workers), Standing.UNKNOWN, np.uint8)
        self.standing_version = 0
        """Grows whenever `standing` changes, so that what is derived from it may be cached."""
        self.beliefs = Beliefs(len(workers), plan.routing.belief_weight, plan.routing.belief_recovery_ms)
        self.in_flight = InFlight(len(workers), in_flight_limit)
        self.score_inputs = ScoreInputs(
            self.wan_ms,
            self.queue_ms,
            self.prefill_ms_per_token,
            self.reload_ms_per_token,
            self.beliefs.values,
        )
        """The arrays above that the score reads, as views: they are only ever written in place."""

        self._planned_rate = self.prefill_ms_per_token.copy()
        self._round_trip_us = [
            round(1000 * (plan.wan_ms[origin][r] + plan.wan_ms[r][origin])) for r in self.region
        ]
        self._lease_us = plan.routing.lease_ms * 1000
        self._report_weight = plan.routing.ewma_weight
        self._loads: list[WorkerLoad | None] = [None] * len(workers)
        self._reported_ms: NDArray[np.float64] = np.zeros(len(workers))
        self._learned_us: NDArray[np.int64] = np.full(len(workers), _NEVER_US, np.int64)
        self._out: NDArray[np.bool_] = np.zeros(len(workers), np.bool_)
        self._suspected_until_us: NDArray[np.int64] = np.full(len(workers), _NEVER_US, np.int64)
        self._standing_until_us = _NEVER_US

    def __len__(self) -> int:
        return len(self.worker_ids)

    def report(self, worker: int, load: WorkerLoad, received_us: int, *, live: bool = False) -> bool:
        """Fold in a load of a worker; False when what is held was learned later than this.

        `load.age_ms` is time spent at the sender; freshness is judged by it and local receive time alone.
        `live`: the sender has added what it sent there since (a region's vector), so the report shows own
        work up to its sending, whatever its age.
        """
        assert 0.0 <= load.queue_ms < float("inf"), "decoders refuse what is not a finite number"
        learned_us = received_us - load.age_ms * 1000
        previous_us = int(self._learned_us[worker])
        if learned_us < previous_us:
            return False
        weight = self._report_weight
        if self.is_local[worker] or learned_us - previous_us > self._lease_us or self._out[worker]:
            weight = 1.0
        held = float(self._reported_ms[worker])
        self._reported_ms[worker] = held + weight * (load.queue_ms - held)
        if load.prefill_ms_per_token > 0.0:
            planned = float(self._planned_rate[worker])
            self.prefill_ms_per_token[worker] = min(
                max(load.prefill_ms_per_token, planned / RATE_BAND), planned * RATE_BAND
            )
        self._loads[worker] = load
        self._learned_us[worker] = learned_us
        self._out[worker] = load.state is not WorkerState.READY
        shown_until_us = (received_us if live else learned_us) - self._round_trip_us[worker]
        self.in_flight.reported(worker, shown_until_us)
        expected = Standing.OUT if self._out[worker] else Standing.KNOWN
        if self.standing[worker] != expected:
            self._standing_until_us = _NEVER_US
        self._estimate(worker)
        return True

    def suspect(self, worker: int, until_us: int) -> None:
        """Consider the worker last until then, or until it answers; never shortens a suspicion."""
        self._suspected_until_us[worker] = max(until_us, int(self._suspected_until_us[worker]))
        self._standing_until_us = _NEVER_US

    def start(self, request_id: Hashable, flight: Flight) -> bool:
        """A request leaves for its worker; False when it could not be tracked."""
        tracked = self.in_flight.start(request_id, flight)
        self._estimate(flight.worker)
        return tracked

    def first_byte(self, request_id: Hashable, now_us: int) -> Flight | None:
        """The worker answers: its prefill is over, and it is not suspected any more."""
        flight = self.in_flight.first_byte(request_id, now_us)
        if flight is not None:
            self._estimate(flight.worker)
            if self._suspected_until_us[flight.worker] != _NEVER_US:
                self._suspected_until_us[flight.worker] = _NEVER_US
                self._standing_until_us = _NEVER_US
        return flight

    def end(self, request_id: Hashable) -> Flight | None:
        """A request ended; None when it has left already."""
        flight = self.in_flight.end(request_id)
        if flight is not None:
            self._estimate(flight.worker)
        return flight

    def refresh(self, now_us: int) -> None:
        """Bring standing and belief up to `now_us`. Call before reading; cheap unless something changed."""
        self.beliefs.recover(now_us)
        if now_us >= self._standing_until_us:
            self._stand(now_us)

    def standing_of(self, worker: int) -> Standing:
        """Standing of one worker, as of the last refresh."""
        return Standing(int(self.standing[worker]))

    def state_of(self, worker: int, now_us: int) -> WorkerState:
        """What the worker's agent last said, UNKNOWN when that is older than the lease."""
        load = self.load_of(worker, now_us)
        return WorkerState.UNKNOWN if load is None else load.state

    def load_of(self, worker: int, now_us: int) -> WorkerLoad | None:
        """Last report of a worker, None when there is none younger than the lease."""
        return self._loads[worker] if now_us - int(self._learned_us[worker]) <= self._lease_us else None

    def age_ms(self, worker: int, now_us: int) -> float | None:
        """Age of the last report, None when there never was one."""
        if self._loads[worker] is None:
            return None
        return (now_us - int(self._learned_us[worker])) / 1000.0

    def _estimate(self, worker: int) -> None:
        self.queue_ms[worker] = self._reported_ms[worker] + self.in_flight.work_us[worker] / 1000.0

    def _stand(self, now_us: int) -> None:
        known = now_us - self._learned_us <= self._lease_us
        suspected = self._suspected_until_us > now_us
        standing = np.where(known, Standing.KNOWN, Standing.UNKNOWN).astype(np.uint8)
        standing[suspected] = Standing.SUSPECTED
        standing[known & self._out] = Standing.OUT
        changed = not np.array_equal(standing, self.standing)
        if changed:
            self.standing = standing
            self.standing_version += 1
        if not known.all():
            reliable = known & ~self._out
            self._reported_ms[~known] = self._reported_ms[reliable].max() if reliable.any() else 0.0
            np.add(self._reported_ms, self.in_flight.work_us / 1000.0, out=self.queue_ms)
        ends = np.concatenate(
            (self._learned_us[known] + self._lease_us + 1, self._suspected_until_us[suspected], [_FOREVER_US])
        )
        self._standing_until_us = int(ends.min())
