"""The fleet as one edge sees it: arrays over the plan's workers, each with one owner, here."""

from collections.abc import Hashable
from copy import copy
from enum import IntEnum
from math import inf
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.backlog import FOREVER_US
from kvcompass.fleet.belief import Beliefs
from kvcompass.fleet.in_flight import Flight, InFlight
from kvcompass.fleet.load import LOAD_ROW, WorkerLoad, WorkerState, load_of_row
from kvcompass.kernels.loads import RATE_BAND, UNTOLD, fold_loads, tell_loads
from kvcompass.kernels.queues import estimate_batches, estimate_queues
from kvcompass.plan.model import Plan
from kvcompass.plan.seats import is_vacant
from kvcompass.score import ScoreInputs

_NEVER_US = -(1 << 62)

KEPT_ROW: Final = np.dtype(
    [
        ("load", LOAD_ROW),
        ("learned_us", np.int64),
        ("round_trip_us", np.int64),
        ("weight", np.float64),
        ("planned_rate", np.float64),
        ("drain", np.bool_),
    ],
    align=True,
)
"""What a view keeps of a worker to take its next report: the last one, all zeros if there was none, and when
it was learned; the way there and back; the weight of a report; the plan's milliseconds per token; whether the
plan has it drained."""

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

    `context_tokens[w]`, as of the last `refresh` too, is what the newest report tells of the decode batch.
    Where that is not told, or the load is UNKNOWN, the mean of the others stands in for it.
    """

    def __init__(self, plan: Plan, origin: int) -> None:
        self.beliefs = Beliefs(len(plan.workers), plan.routing.belief_weight, plan.routing.belief_recovery_ms)
        self.in_flight = InFlight(len(plan.workers), IN_FLIGHT_LIMIT)
        self.standing_version = 0
        """Grows whenever `standing` changes, so that what is derived from it may be cached."""
        self._begin(plan, origin)

    def apply_plan(self, plan: Plan) -> None:
        """Go by the next version of the plan, `kvcompass.plan.seats.seated` behind the present one.

        Workers that stay keep their loads, beliefs, suspicions and requests under way; the arrays are others.
        """
        before = copy(self)
        stay = np.zeros(len(plan.workers), np.bool_)
        stay[: len(before)] = [
            worker.id == known for worker, known in zip(plan.workers, before.worker_ids, strict=False)
        ]
        self.beliefs.apply_plan(stay, plan.routing.belief_weight, plan.routing.belief_recovery_ms)
        self.in_flight.grow(len(plan.workers))
        self._begin(plan, plan.region_index(before.plan.regions[before.origin]))
        self._remember(before, np.flatnonzero(stay))

    def free_seats(self) -> frozenset[int]:
        """Seats whose workers have left, and at which no request of this edge is under way."""
        seats = enumerate(self.plan.workers)
        return frozenset(i for i, worker in seats if is_vacant(worker) and not self.in_flight.requests[i])

    def _begin(self, plan: Plan, origin: int) -> None:
        """Everything that follows from the plan, and of the workers that nothing is known."""
        workers = plan.workers
        regions = [plan.region_index(worker.region) for worker in workers]
        self.plan = plan
        self.origin = origin
        self.worker_ids = tuple(worker.id for worker in workers)
        self.region_names = tuple(worker.region for worker in workers)
        vacant = np.array([is_vacant(worker) for worker in workers])
        self.index_of = {worker.id: i for i, worker in enumerate(workers) if not vacant[i]}
        self.predicted = {
            i: worker.id
            for i, worker in enumerate(workers)
            if worker.holdings == "predicted" and not vacant[i]
        }
        """Ids of the workers whose holdings are predicted, by index: their matches are APPROXIMATE."""
        self.is_local: NDArray[np.bool_] = np.array(regions) == origin
        self.in_group: dict[str, NDArray[np.bool_]] = {
            group: np.array([w.sharing_group == group for w in workers]) & ~vacant
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
        self.context_ms_per_token: NDArray[np.float64] = np.array([w.context_ms_per_token for w in workers])
        """float64[W]: what each of these adds to a step."""
        self.context_tokens: NDArray[np.float64] = np.zeros(len(workers))
        """float64[W]: tokens in use of the KV pool, which each decode step reads; a stand-in as above."""
        self.queue_ms: NDArray[np.float64] = np.zeros(len(workers))
        """float64[W]: the estimate above; for KNOWN workers only is it more than a stand-in."""
        self.standing: NDArray[np.uint8] = np.full(len(workers), Standing.UNKNOWN, np.uint8)
        self.score_inputs = ScoreInputs(
            self.wan_charge_ms,
            self.queue_ms,
            self.prefill_ms_per_token,
            self.reload_ms_per_token,
            self.beliefs.values,
            self.context_ms_per_token,
            self.context_tokens,
        )
        """The arrays above that the score reads, as views: they are only ever written in place."""

        self._own: NDArray[np.int64] = np.flatnonzero(self.is_local & ~vacant)
        self._own_ids = tuple(self.worker_ids[worker] for worker in self._own)
        self._known_own = np.empty_like(self._own)
        """Room for those that `told` finds."""
        self._lease_us = plan.routing.lease_ms * 1000
        self._kept: NDArray[np.void] = np.zeros(len(workers), KEPT_ROW)
        self._kept["learned_us"] = _NEVER_US
        self._kept["round_trip_us"] = [
            round(1000 * (plan.wan_ms[origin][r] + plan.wan_ms[r][origin])) for r in regions
        ]
        self._kept["weight"] = np.where(self.is_local, 1.0, plan.routing.ewma_weight)
        self._kept["planned_rate"] = self.prefill_ms_per_token
        self._kept["drain"] = [worker.drain for worker in workers]
        self._last, self._learned_us = self._kept["load"], self._kept["learned_us"]
        self._reported_ms: NDArray[np.float64] = np.zeros(len(workers))
        self._told_tokens: NDArray[np.float64] = np.full(len(workers), UNTOLD)
        self._queue_inputs = (
            self._reported_ms,
            self.in_flight.unreported_us,
            *self.in_flight.backlog.work_us,
        )
        self._fold_inputs = (
            self._kept,
            self._lease_us,
            self.in_flight.unreported_since_us,
            self._reported_ms,
            self.prefill_ms_per_token,
            self._told_tokens,
            self.standing,
        )
        self._tell_inputs = (self._kept, self._lease_us, self.queue_ms)
        self._one: tuple[NDArray[np.int64], NDArray[np.void]] = (np.zeros(1, np.int64), np.zeros(1, LOAD_ROW))
        """Room for the report of one worker."""
        self._suspected_until_us: NDArray[np.int64] = np.full(len(workers), _NEVER_US, np.int64)
        self._declined_until_us: NDArray[np.int64] = np.full(len(workers), _NEVER_US, np.int64)
        self._standing_until_us = _NEVER_US
        self.standing_version += 1

    def _remember(self, before: "FleetView", stay: NDArray[np.int64]) -> None:
        """Take over what was known of the workers that have the seats `stay` in both."""
        self.queue_ms[stay] = before.queue_ms[stay]
        self._told_tokens[stay] = before._told_tokens[stay]
        self.standing[stay] = before.standing[stay]
        self._last[stay] = before._last[stay]
        self._learned_us[stay] = before._learned_us[stay]
        self._reported_ms[stay] = before._reported_ms[stay]
        self._suspected_until_us[stay] = before._suspected_until_us[stay]
        self._declined_until_us[stay] = before._declined_until_us[stay]
        measured, planned = self._last["prefill_ms_per_token"], self._kept["planned_rate"]
        believed = np.clip(measured, planned / RATE_BAND, planned * RATE_BAND)
        self.prefill_ms_per_token[:] = np.where(measured > 0.0, believed, planned)

    def __len__(self) -> int:
        return len(self.worker_ids)

    def report(self, worker: int, load: WorkerLoad, received_us: int, *, live: bool = False) -> None:
        """Fold in a load of a worker, as `report_all` does."""
        assert 0.0 <= load.queue_ms < inf, "decoders refuse what is not a finite number"
        workers, rows = self._one
        workers[0], rows[0] = worker, load[1:]
        self.report_all(workers, rows, received_us, live=live)

    def report_all(
        self, workers: NDArray[np.int64], rows: NDArray[np.void], received_us: int, *, live: bool
    ) -> None:
        """Fold in LOAD_ROW[n] of int64[n] workers; the caller has refused those that were overtaken.

        A negative worker is passed over. `age_ms` is time spent at the sender; freshness is judged by it and
        local receive time alone. `live`: the sender has added what it sent there since (a region's vector),
        so a report shows own work up to its sending, whatever its age.
        """
        folded = 0
        while True:
            folded, shown_until_us, moved = fold_loads(
                rows, workers, folded, received_us, live, *self._fold_inputs
            )
            if moved:
                self._standing_until_us = _NEVER_US
            if folded == rows.size:
                return
            worker = int(workers[folded])
            self._reported_ms[worker] += self.in_flight.reported(worker, shown_until_us) / 1000.0

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
        estimate_batches(self._told_tokens, self._kept, now_us, self._lease_us, self.context_tokens)

    def standing_of(self, worker: int) -> Standing:
        """Standing of one worker, as of the last refresh."""
        return Standing(int(self.standing[worker]))

    def state_of(self, worker: int, now_us: int) -> WorkerState:
        """What the worker's agent last said, UNKNOWN when that is older than the lease."""
        load = self.load_of(worker, now_us)
        return WorkerState.UNKNOWN if load is None else load.state

    def load_of(self, worker: int, now_us: int) -> WorkerLoad | None:
        """Last report of a worker, None when there is none younger than the lease."""
        known = self._is_known(worker, now_us)
        return load_of_row(self.worker_ids[worker], self._last[worker].item()) if known else None

    def batch_of(self, worker: int, now_us: int) -> int | None:
        """Tokens in use that a worker told within the lease; None where a stand-in is taken."""
        told = float(self._told_tokens[worker])
        return int(told) if told >= 0.0 and self._is_known(worker, now_us) else None

    def told(self, now_us: int) -> tuple[tuple[str, ...], NDArray[np.void]]:
        """Ids and last reports of the own region's workers, LOAD_ROW each.

        Each has its queue as of the last refresh and its age. Workers whose load is unknown are left out.
        """
        rows = np.empty(len(self._own), LOAD_ROW)
        known = self._known_own
        count = tell_loads(rows, known, self._own, now_us, *self._tell_inputs)
        if count == len(rows):
            return self._own_ids, rows
        return tuple(self.worker_ids[worker] for worker in known[:count]), rows[:count]

    def age_ms(self, worker: int, now_us: int) -> float | None:
        """Age of the last report, None when there never was one."""
        learned_us = int(self._learned_us[worker])
        return None if learned_us == _NEVER_US else (now_us - learned_us) / 1000.0

    def _is_known(self, worker: int, now_us: int) -> bool:
        return now_us - int(self._learned_us[worker]) <= self._lease_us

    def _stand(self, now_us: int) -> None:
        learned_us, drained = self._learned_us, self._kept["drain"]
        out = self._last["state"] != WorkerState.READY
        known = now_us - learned_us <= self._lease_us
        avoided_until_us = np.maximum(self._suspected_until_us, self._declined_until_us)
        suspected = avoided_until_us > now_us
        standing = np.where(known, Standing.KNOWN, Standing.UNKNOWN).astype(np.uint8)
        standing[suspected] = Standing.SUSPECTED
        standing[(known & out) | drained] = Standing.OUT
        changed = not np.array_equal(standing, self.standing)
        if changed:
            self.standing[:] = standing
            self.standing_version += 1
        if not known.all():
            reliable = known & ~out
            self._reported_ms[~known] = self._reported_ms[reliable].max() if reliable.any() else 0.0
        ends = np.concatenate(
            (learned_us[known] + self._lease_us + 1, avoided_until_us[suspected], [FOREVER_US])
        )
        self._standing_until_us = int(ends.min())
