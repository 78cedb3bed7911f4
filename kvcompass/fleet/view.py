"""The fleet as one edge sees it: arrays over the plan's workers, each with one owner, here."""

from collections.abc import Hashable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.belief import Beliefs
from kvcompass.fleet.in_flight import Flight, InFlight
from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.kernels.queues import estimate_queues
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
    """It has just failed, or asked to be left alone for a while."""
    OUT = 3
    """Draining or unreachable: never a candidate."""


_KNOWN, _OUT, _READY = int(Standing.KNOWN), int(Standing.OUT), int(WorkerState.READY)


class FleetView:
    """Queue estimates, standing and belief of every worker, seen from region `origin` (an index of the plan).

    `queue_ms[w] = max(reported + unreported, backlog)`, as of the last `refresh`:

    reported: the queue last told of (own region: as it is; other regions: EWMA of weight w, paper 3.4). For a
        worker of UNKNOWN load the largest known one stands in for it.
    unreported: own prefill work without a first byte that the report cannot show. A report received at t from
        a worker a round trip 2d away shows what was sent until t - 2d.
    backlog: what remains of all own prefill work without a first byte (`Backlog`). Engines tell what waits
        and not what they compute, so a prefill under way is in no report.

    The two sides share work, so the larger one stands and nothing counts twice. Work that a report is the
    first to show moves from unreported into reported before the report is averaged in: a report equal to what
    is believed changes nothing (docs/decisions/0301-the-queue-of-a-worker.md).
    """

    def __init__(self, plan: Plan, origin: int, *, in_flight_limit: int = IN_FLIGHT_LIMIT) -> None:
        workers = plan.workers
        regions = [plan.region_index(worker.region) for worker in workers]
        self.plan = plan
        self.origin = origin
        self.worker_ids = tuple(worker.id for worker in workers)
        self.region_names = tuple(worker.region for worker in workers)
        self.index_of = {worker_id: index for index, worker_id in enumerate(self.worker_ids)}
        self.is_local: NDArray[np.bool_] = np.array(regions) == origin
        self.in_group: dict[str, NDArray[np.bool_]] = {
            group: np.array([w.sharing_group == group for w in workers])
            for group in {w.sharing_group for w in workers}
        }
        self.local_in_group = {group: members & self.is_local for group, members in self.in_group.items()}
        self.wan_ms: NDArray[np.float64] = np.array([plan.wan_ms[origin][r] for r in regions])
        """float64[W], one way."""
        back_ms = np.array([plan.wan_ms[r][origin] for r in regions])
        self.wan_charge_ms: NDArray[np.float64] = (
            self.wan_ms + back_ms if plan.routing.wan_charge == "round_trip" else self.wan_ms
        )
        """float64[W]: what the score charges for the way."""
        self.prefill_ms_per_token: NDArray[np.float64] = np.array([w.prefill_ms_per_token for w in workers])
        """float64[W]: measured where an agent reports it, else the plan's."""
        self.reload_ms_per_token: NDArray[np.float64] = np.array([w.reload_ms_per_token for w in workers])
        self.queue_ms: NDArray[np.float64] = np.zeros(len(workers))
        """float64[W]: the estimate above; for KNOWN workers only is it more than a stand-in."""
        self.standing: NDArray[np.uint8] = np.full(len(workers), Standing.UNKNOWN, np.uint8)
        self.standing_version = 0
        """Grows whenever `standing` changes, so that what is derived from it may be cached."""
        self.beliefs = Beliefs(len(workers), plan.routing.belief_weight, plan.routing.belief_recovery_ms)
        self.in_flight = InFlight(len(workers), in_flight_limit)
        self.score_inputs = ScoreInputs(
            self.wan_charge_ms,
            self.queue_ms,
            self.prefill_ms_per_token,
            self.reload_ms_per_token,
            self.beliefs.values,
        )
        """The arrays above that the score reads, as views: they are only ever written in place."""

        self._local: list[bool] = self.is_local.tolist()
        self._planned_rate = [worker.prefill_ms_per_token for worker in workers]
        self._round_trip_us = [
            round(1000 * (plan.wan_ms[origin][r] + plan.wan_ms[r][origin])) for r in regions
        ]
        self._lease_us = plan.routing.lease_ms * 1000
        self._report_weight = plan.routing.ewma_weight
        self._loads: list[WorkerLoad | None] = [None] * len(workers)
        self._reported_ms: NDArray[np.float64] = np.zeros(len(workers))
        self._queue_inputs = (
            self._reported_ms,
            self.in_flight.unreported_us,
            *self.in_flight.backlog.work_us,
        )
        self._learned_us = [_NEVER_US] * len(workers)
        self._out = [False] * len(workers)
        self._stands = [int(Standing.UNKNOWN)] * len(workers)
        """`standing`, where each report looks: a list is read sooner than an array."""
        self._suspected_until_us: NDArray[np.int64] = np.full(len(workers), _NEVER_US, np.int64)
        self._declined_until_us: NDArray[np.int64] = np.full(len(workers), _NEVER_US, np.int64)
        self._standing_until_us = _NEVER_US

    def __len__(self) -> int:
        return len(self.worker_ids)

    def report(self, worker: int, load: WorkerLoad, received_us: int, *, live: bool = False) -> None:
        """Fold in a load of a worker; the caller has refused those that were overtaken.

        `load.age_ms` is time spent at the sender; freshness is judged by it and local receive time alone.
        `live`: the sender has added what it sent there since (a region's vector), so the report shows own
        work up to its sending, whatever its age.
        """
        assert 0.0 <= load.queue_ms < float("inf"), "decoders refuse what is not a finite number"
        learned_us = received_us - load.age_ms * 1000
        previous_us = self._learned_us[worker]
        shown_until_us = (received_us if live else learned_us) - self._round_trip_us[worker]
        shown_ms = self.in_flight.reported(worker, shown_until_us) / 1000.0
        weight = self._report_weight
        if self._local[worker] or learned_us - previous_us > self._lease_us or self._out[worker]:
            weight = 1.0
        believed = self._reported_ms.item(worker) + shown_ms
        self._reported_ms[worker] = believed + weight * (load.queue_ms - believed)
        before, measured = self._loads[worker], load.prefill_ms_per_token
        if measured > 0.0 and (before is None or before.prefill_ms_per_token != measured):
            planned = self._planned_rate[worker]
            self.prefill_ms_per_token[worker] = min(max(measured, planned / RATE_BAND), planned * RATE_BAND)
        self._loads[worker] = load
        if learned_us > previous_us:
            self._learned_us[worker] = learned_us
        out = load.state != _READY
        self._out[worker] = out
        if self._stands[worker] != (_OUT if out else _KNOWN):
            self._standing_until_us = _NEVER_US

    def suspect(self, worker: int, until_us: int) -> None:
        """Consider the worker last until then, or until it answers; never shortens a suspicion."""
        self._suspected_until_us[worker] = max(until_us, int(self._suspected_until_us[worker]))
        self._standing_until_us = _NEVER_US

    def declined(self, worker: int, until_us: int) -> None:
        """The worker takes no more until then: considered last until then, whatever it answers meanwhile.

        A full engine goes on answering what it has taken. Never shortens what it has asked for before.
        """
        self._declined_until_us[worker] = max(until_us, int(self._declined_until_us[worker]))
        self._standing_until_us = _NEVER_US

    def answered(self, worker: int) -> None:
        """The worker has answered: it is not suspected any more. What it has declined stays declined."""
        if self._suspected_until_us[worker] != _NEVER_US:
            self._suspected_until_us[worker] = _NEVER_US
            self._standing_until_us = _NEVER_US

    def start(self, request_id: Hashable, flight: Flight) -> bool:
        """A request leaves for its worker; False when it could not be tracked.

        Its prefill is expected to begin when it has arrived and the queue of this moment has been worked off.
        """
        worker = flight.worker
        ahead_ms = float(self._reported_ms[worker]) + int(self.in_flight.unreported_us[worker]) / 1000.0
        waits_ms = max(float(self.wan_ms[worker]), ahead_ms)
        return self.in_flight.start(request_id, flight, flight.sent_us + round(waits_ms * 1000.0))

    def first_byte(self, request_id: Hashable, now_us: int) -> Flight | None:
        """An answer begins, so the prefill is over; None when the request is not in flight."""
        return self.in_flight.first_byte(request_id, now_us)

    def end(self, request_id: Hashable, now_us: int) -> Flight | None:
        """A request ended; None when it has left already."""
        return self.in_flight.end(request_id, now_us)

    def refresh(self, now_us: int) -> None:
        """Bring queues, standing and belief up to `now_us`. Call before reading; some microseconds."""
        self.beliefs.recover(now_us)
        if now_us >= self._standing_until_us:
            self._stand(now_us)
        self.in_flight.backlog.age(now_us)
        estimate_queues(*self._queue_inputs, now_us, self.queue_ms)

    def standing_of(self, worker: int) -> Standing:
        """Standing of one worker, as of the last refresh."""
        return Standing(int(self.standing[worker]))

    def state_of(self, worker: int, now_us: int) -> WorkerState:
        """What the worker's agent last said, UNKNOWN when that is older than the lease."""
        load = self.load_of(worker, now_us)
        return WorkerState.UNKNOWN if load is None else load.state

    def load_of(self, worker: int, now_us: int) -> WorkerLoad | None:
        """Last report of a worker, None when there is none younger than the lease."""
        return self._loads[worker] if now_us - self._learned_us[worker] <= self._lease_us else None

    def told(self, workers: Sequence[int], now_us: int) -> tuple[WorkerLoad, ...]:
        """Last reports of some workers, each with its queue as of the last refresh and its age.

        Those whose load is unknown are left out.
        """
        queue_ms: list[float] = self.queue_ms.tolist()
        since_us = now_us - self._lease_us
        loads = []
        for worker in workers:
            load, learned_us = self._loads[worker], self._learned_us[worker]
            if load is not None and learned_us >= since_us:
                worker_id, state, _, running, waiting, used, most, rate, _ = load
                age_ms = round((now_us - learned_us) / 1000.0)
                loads.append(
                    WorkerLoad(worker_id, state, queue_ms[worker], running, waiting, used, most, rate, age_ms)
                )
        return tuple(loads)

    def age_ms(self, worker: int, now_us: int) -> float | None:
        """Age of the last report, None when there never was one."""
        if self._loads[worker] is None:
            return None
        return (now_us - self._learned_us[worker]) / 1000.0

    def _stand(self, now_us: int) -> None:
        learned_us, out = np.array(self._learned_us, np.int64), np.array(self._out, np.bool_)
        known = now_us - learned_us <= self._lease_us
        avoided_until_us = np.maximum(self._suspected_until_us, self._declined_until_us)
        suspected = avoided_until_us > now_us
        standing = np.where(known, Standing.KNOWN, Standing.UNKNOWN).astype(np.uint8)
        standing[suspected] = Standing.SUSPECTED
        standing[known & out] = Standing.OUT
        changed = not np.array_equal(standing, self.standing)
        if changed:
            self.standing = standing
            self._stands = standing.tolist()
            self.standing_version += 1
        if not known.all():
            reliable = known & ~out
            self._reported_ms[~known] = self._reported_ms[reliable].max() if reliable.any() else 0.0
        ends = np.concatenate(
            (learned_us[known] + self._lease_us + 1, avoided_until_us[suspected], [_FOREVER_US])
        )
        self._standing_until_us = int(ends.min())
