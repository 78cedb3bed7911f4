"""The edge as a state machine: places requests, learns from their ends, keeps and tells load."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.broadcast import BroadcastSchedule
from kvcompass.fleet.expected import ExpectedHoldings
from kvcompass.fleet.in_flight import Flight
from kvcompass.fleet.load import LoadVerdict, RegionLoad, WorkerState
from kvcompass.fleet.region_workers import RegionWorkers
from kvcompass.fleet.sequence_guard import SequenceGuard
from kvcompass.fleet.view import FleetView, Standing
from kvcompass.index.lookup_unit import Lookup, Matches
from kvcompass.levels.query_plan import query_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.seats import is_vacant
from kvcompass.roles.messages import AgentLoad
from kvcompass.routing.decision import Decision, NoWorker
from kvcompass.routing.names import PolicyName
from kvcompass.routing.policies import make_policy
from kvcompass.routing.request import RoutingRequest

EXPECTATION_LIMIT = 4_096
"""Requests whose prefixes are expected at once; a few seconds of a busy edge."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished request taught."""

    worker: int
    claimed: int
    """Tokens; 0 when the decision claimed nothing."""
    reused: int | None
    """Tokens; None when the engine did not say."""
    wrong_claim: bool
    """The engine reused less than claimed."""
    cross_region_hit: bool
    """Another region's cache beat the best local match, and the engine reused at least the claim."""
    belief: float
    """Of the worker, afterwards."""
    wrong_prediction: bool = False
    """The engine reused less than it was taken to hold (APPROXIMATE)."""


class EdgeRole:
    """Everything an edge decides, without a socket or a clock.

    `now_us` is the caller's monotonic clock and never goes back. A `request_id` names one attempt at one
    worker and is the caller's own: clients may repeat theirs. Every attempt that is `started` is ended by
    `finished` or `failed`; a second end is harmless, so the shell may call `failed` in a `finally`.
    """

    def __init__(
        self, plan: Plan, edge_id: str, lookup: Lookup, *, epoch: int, policy: PolicyName = "kvcompass"
    ) -> None:
        position, edge = next((i, edge) for i, edge in enumerate(plan.edges) if edge.id == edge_id)
        self.edge_id = edge_id
        self.region = edge.region
        self.fleet = FleetView(plan, plan.region_index(edge.region))
        self.policy = make_policy(
            policy, self.fleet, rotation_start=position * len(plan.workers) // len(plan.edges), lookup=lookup
        )
        self._policy_name: PolicyName = policy
        self._rungs = query_plan(plan).rungs
        self.keys_version = 0
        """Grows when prompts are keyed at other lengths: keys from before then say nothing any more."""
        self.expected = ExpectedHoldings(self._rungs, len(plan.workers), EXPECTATION_LIMIT)
        self.expected.predict(self.fleet.predicted, plan.routing.predicted_ttl_ms * 1000)
        self.broadcasts = BroadcastSchedule(plan, edge.region)
        self.load_verdicts: Counter[LoadVerdict] = Counter()
        self.blind_decisions = 0
        self.wrong_claims: Counter[str] = Counter()
        self.wrong_predictions: Counter[str] = Counter()
        """Both by worker's id, kept when it leaves the plan."""
        self.cross_region_hits: Counter[str] = Counter()
        """By the worker's region."""
        self._lease_us = plan.routing.lease_ms * 1000
        self._epoch = epoch
        self._sequence = 0
        self._agents, self._edges = SequenceGuard(), SequenceGuard()
        self._own_workers = self._workers_here()
        self._region_workers = RegionWorkers(plan)
        self._region_of_edge = {edge.id: edge.region for edge in plan.edges}
        self._stand_in = make_policy("regional", self.fleet)
        self._no_keys = np.zeros(0, np.uint64)
        self._no_matches = Matches.none(len(plan.workers))

    # --- the plan -----------------------------------------------------------------------------------

    def apply_plan(self, plan: Plan, rungs: NDArray[np.int32], lookup: Lookup) -> None:
        """Goes by the next version of the plan. What is known of workers that stay is kept, and so are the
        requests under way, those at workers that have left too.

        Args:
            plan: The next version, `kvcompass.plan.seats.seated` behind `fleet.plan`.
            rungs: int32[n], of its query plan: the keys of `decide` are theirs from here on.
            lookup: Finds matches at the seats of `plan`.
        """
        self.fleet.apply_plan(plan)
        self.policy = make_policy(self._policy_name, self.fleet, self.policy.turn, lookup)
        self._stand_in = make_policy("regional", self.fleet, self._stand_in.turn)
        self.keys_version += not np.array_equal(rungs, self._rungs)
        self._rungs = rungs
        self.expected.apply_plan(rungs, len(plan.workers))
        self.expected.predict(self.fleet.predicted, plan.routing.predicted_ttl_ms * 1000)
        self.broadcasts.apply_plan(plan)
        self._lease_us = plan.routing.lease_ms * 1000
        self._own_workers = self._workers_here()
        self._region_workers = RegionWorkers(plan)
        self._region_of_edge = {edge.id: edge.region for edge in plan.edges}
        self._no_matches = Matches.none(len(plan.workers))

    # --- requests -----------------------------------------------------------------------------------

    def decide(
        self,
        prompt_tokens: int,
        keys: NDArray[np.uint64],
        sharing_group: str,
        now_us: int,
        *,
        exclude: frozenset[int] = frozenset(),
        blind: bool = False,
        answer_tokens: float = inf,
        explain: bool = False,
    ) -> Decision | NoWorker:
        """Place a request. `keys` are those of the query plan's rungs up to `prompt_tokens - 1`.

        `exclude`: workers this request has failed at. `blind`: a shard of the view is STALE or ABSENT.
        `answer_tokens`: the longest answer asked for.
        `explain` lists every worker's terms and leaves no trace, so it may be asked at any time.
        """
        request = RoutingRequest(
            prompt_tokens,
            sharing_group,
            None,
            keys,
            self.expected.match(keys, now_us),
            exclude,
            blind,
            answer_tokens,
        )
        decision = self.policy.decide(request, now_us, explain=explain)
        if blind and not explain and isinstance(decision, Decision):
            self.blind_decisions += 1
        return decision

    def stand_in(
        self, prompt_tokens: int, sharing_group: str, now_us: int, exclude: frozenset[int]
    ) -> Decision | NoWorker:
        """A worker of this region for a peer's request whose own target has just died."""
        request = RoutingRequest(
            prompt_tokens, sharing_group, self._no_matches, self._no_keys, exclude=exclude
        )
        return self._stand_in.decide(request, now_us)

    def started(self, request_id: Hashable, decision: Decision, now_us: int) -> None:
        """The request leaves for the worker of its decision. An attempt of the same id is ended first."""
        flight = Flight(
            decision.worker,
            now_us,
            round(decision.residual_ms * 1000.0),
            decision.match_tokens,
            decision.local_best_match,
            predicted=self.expected.predicted_match(decision.worker, decision.keys, now_us),
        )
        if self._start(request_id, flight):
            self.expected.expect(request_id, decision.worker, decision.keys, decision.match_tokens, now_us)

    def carried(self, request_id: Hashable, worker: int, residual_ms: float, now_us: int) -> None:
        """A peer's request passes through to a worker of this region; its claims are the peer's to judge.

        `residual_ms` is the prefill it is expected to take. It then counts in this region's queue vector.
        """
        self._start(request_id, Flight(worker, now_us, round(residual_ms * 1000.0), 0, 0))

    def first_byte(
        self, request_id: Hashable, now_us: int, *, worker: int | None = None, prefilled: bool = True
    ) -> None:
        """The answer begins: nothing of the prefill is left to do.

        `worker` gives it, None: the one the request was sent to. Another one does so because that has failed:
        it is suspected for a lease and will not hold the prompt. `prefilled`: the answer is a completion; an
        error leaves nothing in a cache either.
        """
        flight = self.fleet.first_byte(request_id, now_us)
        if flight is None:
            return
        answering = flight.worker if worker is None else worker
        self.fleet.answered(answering)
        if answering != flight.worker:
            self.fleet.suspect(flight.worker, now_us + self._lease_us)
        if prefilled and answering == flight.worker:
            self.expected.prefilled(request_id, now_us)
        else:
            self.expected.ended(request_id)

    def finished(self, request_id: Hashable, cached_tokens: int | None, now_us: int) -> Outcome | None:
        """The answer is complete; `cached_tokens` as the engine counts reuse. None when it ended before."""
        flight = self.fleet.end(request_id, now_us)
        if flight is None:
            return None
        self.expected.prefilled(request_id, now_us)
        belief = float(self.fleet.beliefs.values[flight.worker])
        wrong_claim = cross_region_hit = wrong_prediction = False
        if not flight.claimed and flight.predicted > 0 and cached_tokens is not None:
            belief = self.fleet.beliefs.observe(flight.worker, flight.predicted, cached_tokens, now_us)
            wrong_prediction = cached_tokens < flight.predicted
        if flight.claimed > 0 and cached_tokens is not None:
            belief = self.fleet.beliefs.observe(flight.worker, flight.claimed, cached_tokens, now_us)
            wrong_claim = cached_tokens < flight.claimed
            cross_region_hit = (
                not wrong_claim
                and not self.fleet.is_local[flight.worker]
                and flight.claimed > flight.local_best_match
            )
        if wrong_claim:
            self.wrong_claims[self.fleet.worker_ids[flight.worker]] += 1
        if wrong_prediction:
            self.wrong_predictions[self.fleet.worker_ids[flight.worker]] += 1
        if cross_region_hit:
            self.cross_region_hits[self.fleet.region_names[flight.worker]] += 1
        return Outcome(
            flight.worker,
            flight.claimed,
            cached_tokens,
            wrong_claim,
            cross_region_hit,
            belief,
            wrong_prediction,
        )

    def failed(self, request_id: Hashable, now_us: int) -> bool:
        """The attempt ended without a complete answer (error, cancellation); False when it ended before.

        Whom that blames a course says (`kvcompass.roles.courses`).
        """
        flight = self.fleet.end(request_id, now_us)
        if flight is None:
            return False
        self.expected.ended(request_id)
        return True

    # --- load ---------------------------------------------------------------------------------------

    def on_worker_load(self, message: AgentLoad, now_us: int) -> LoadVerdict:
        """A report of an agent of this region; one with a handshake begins a stream."""
        load = message.load
        worker = self._own_workers.get(load.worker_id)
        if worker is None:
            known = load.worker_id in self.fleet.index_of
            verdict = LoadVerdict.WRONG_REGION if known else LoadVerdict.UNKNOWN_SENDER
        elif not self._is_newest(
            self._agents, load.worker_id, message.epoch, message.sequence, opens=message.handshake is not None
        ):
            verdict = LoadVerdict.OLD_SEQUENCE
        else:
            self.fleet.report(worker, load, now_us)
            self._forget_the_gone((worker,), now_us)
            verdict = LoadVerdict.ACCEPTED
        self.load_verdicts[verdict] += 1
        return verdict

    def on_region_load(self, message: RegionLoad, now_us: int, *, opens: bool = False) -> LoadVerdict:
        """The queue vector of another region: a broadcast, or the piggyback of a response.

        `opens`: it is the first of a stream of broadcasts.
        """
        verdict = self._judge_region_load(message, opens=opens)
        self.load_verdicts[verdict] += 1
        if verdict is LoadVerdict.ACCEPTED:
            workers, strangers = self._region_workers.find(message.region, message.workers)
            if strangers:
                self.load_verdicts[LoadVerdict.WRONG_REGION] += strangers
            self.fleet.report_all(workers, message.rows, now_us, live=True)
            self._forget_the_gone(self.fleet.predicted, now_us)
        return verdict

    def region_load(self, now_us: int) -> RegionLoad:
        """This region's queue vector, live: own work in flight is in it. Each call takes a sequence number.

        Workers whose load is unknown are left out: a receiver must not take silence for idleness.
        """
        fleet = self.fleet
        fleet.refresh(now_us)
        self._sequence += 1
        return RegionLoad(self.edge_id, self.region, self._epoch, self._sequence, *fleet.told(now_us))

    def piggyback(self, region: str, now_us: int) -> RegionLoad:
        """The queue vector to put on a response to `region`, which then needs no broadcast for a period."""
        self.broadcasts.piggybacked(region, now_us)
        return self.region_load(now_us)

    def broadcasts_due(self, now_us: int) -> tuple[str, ...]:
        """Ids of the edges owed the queue vector now (paper 3.4); they are then not due for a period."""
        return self.broadcasts.due(now_us)

    # --- what is known ------------------------------------------------------------------------------

    def state(self, now_us: int) -> dict[str, object]:
        """Everything this role knows, as JSON-ready values; for operators."""
        fleet = self.fleet
        fleet.refresh(now_us)
        return {
            "edge": self.edge_id,
            "region": self.region,
            "policy": self.policy.name,
            "in_flight": len(fleet.in_flight),
            "in_flight_untracked": fleet.in_flight.untracked,
            "expectations": len(self.expected),
            "expectations_dropped": self.expected.dropped,
            "blind_decisions": self.blind_decisions,
            "wrong_claims": self.wrong_claims.total(),
            "wrong_predictions": self.wrong_predictions.total(),
            "cross_region_hits": self.cross_region_hits.total(),
            "load_messages": {verdict.value: self.load_verdicts[verdict] for verdict in LoadVerdict},
            "workers": self.workers(now_us),
        }

    def workers(self, now_us: int) -> list[dict[str, object]]:
        """What this role knows of every worker of the plan, in its order, as JSON-ready values."""
        self.fleet.refresh(now_us)
        return [
            self._worker_state(worker, now_us)
            for worker in range(len(self.fleet))
            if not is_vacant(self.fleet.plan.workers[worker]) or self.fleet.in_flight.requests[worker]
        ]

    def _workers_here(self) -> dict[str, int]:
        fleet = self.fleet
        return {worker_id: worker for worker_id, worker in fleet.index_of.items() if fleet.is_local[worker]}

    def _worker_state(self, worker: int, now_us: int) -> dict[str, object]:
        fleet = self.fleet
        standing = fleet.standing_of(worker)
        return {
            "worker": fleet.worker_ids[worker],
            "region": fleet.region_names[worker],
            "state": fleet.state_of(worker, now_us).name.lower(),
            "standing": standing.name.lower(),
            "queue_ms": None if standing is Standing.UNKNOWN else float(fleet.queue_ms[worker]),
            "context_tokens": fleet.batch_of(worker, now_us),
            "load_age_ms": fleet.age_ms(worker, now_us),
            "requests_in_flight": int(fleet.in_flight.requests[worker]),
            "belief": float(fleet.beliefs.values[worker]),
            "prefill_ms_per_token": float(fleet.prefill_ms_per_token[worker]),
            "wan_ms": float(fleet.wan_ms[worker]),
            "approximate": worker in fleet.predicted,
            "predicted_keys": self.expected.predicted_keys(worker),
        }

    def _forget_the_gone(self, workers: Iterable[int], now_us: int) -> None:
        """Whoever does not answer may come back with an empty cache, and would not say so."""
        for worker in workers:
            if (
                worker in self.fleet.predicted
                and self.fleet.state_of(worker, now_us) is WorkerState.UNREACHABLE
            ):
                self.expected.forget(worker)

    def _start(self, request_id: Hashable, flight: Flight) -> bool:
        """False when the request cannot be tracked."""
        if self.fleet.end(request_id, flight.sent_us) is not None:
            self.expected.ended(request_id)
        return self.fleet.start(request_id, flight)

    def _judge_region_load(self, message: RegionLoad, *, opens: bool) -> LoadVerdict:
        region = self._region_of_edge.get(message.edge_id)
        if region is None:
            return LoadVerdict.UNKNOWN_SENDER
        if region != message.region or region == self.region:
            return LoadVerdict.WRONG_REGION
        if not self._is_newest(self._edges, message.edge_id, message.epoch, message.sequence, opens=opens):
            return LoadVerdict.OLD_SEQUENCE
        return LoadVerdict.ACCEPTED

    def _is_newest(
        self, guard: SequenceGuard, sender: str, epoch: int, sequence: int, *, opens: bool
    ) -> bool:
        return (guard.open if opens else guard.admit)(sender, epoch, sequence)
