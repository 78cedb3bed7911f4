"""Turns a chosen worker into a Decision, and, when asked, lays out every worker it was weighed against."""

import numpy as np

from kvcompass.fleet.view import FleetView
from kvcompass.plan.seats import is_vacant
from kvcompass.routing.candidates import CandidateSet
from kvcompass.routing.decision import Candidate, Decision, Reason
from kvcompass.routing.request import RoutingRequest
from kvcompass.score import Weighed
from kvcompass.tier import Tier

_TIERS = tuple(Tier)


def decision_for(
    worker: int,
    reason: Reason,
    policy: str,
    fleet: FleetView,
    request: RoutingRequest,
    weighed: Weighed,
) -> Decision:
    """The decision without its candidates."""
    residual = request.prompt_tokens - weighed.effective_match.item(worker)
    return Decision(  # by position: names would take twice as long
        worker,
        fleet.worker_ids[worker],
        fleet.region_names[worker],
        weighed.match_tokens.item(worker),
        _TIERS[weighed.tier.item(worker)],
        weighed.total_ms.item(worker),
        reason,
        policy,
        weighed.local_best,
        request.blind,
        request.prompt_tokens,
        request.expected_at(worker),
        fleet.prefill_ms_per_token.item(worker) * residual,
        weighed.capacity_price,
        request.keys,
    )


def explained(
    fleet: FleetView, request: RoutingRequest, candidates: CandidateSet, weighed: Weighed, now_us: int
) -> tuple[Candidate, ...]:
    """Every worker with its terms: candidates first, best first; then the others, as they would score."""
    order = np.lexsort((weighed.total_ms, ~candidates.standings.candidate))
    return tuple(
        Candidate(
            worker=worker,
            worker_id=fleet.worker_ids[worker],
            region=fleet.region_names[worker],
            standing=fleet.standing_of(worker),
            is_candidate=bool(candidates.standings.candidate[worker]),
            score_ms=float(weighed.total_ms[worker]),
            wan_charge_ms=float(fleet.wan_charge_ms[worker]),
            queue_ms=float(fleet.queue_ms[worker]),
            queue_age_ms=fleet.age_ms(worker, now_us),
            recompute_ms=float(weighed.recompute_ms[worker]),
            reload_ms=float(weighed.reload_ms[worker]),
            decode_ms=float(weighed.decode_ms[worker]),
            match_tokens=int(weighed.match_tokens[worker]),
            expected_tokens=request.expected_at(worker),
            tier=Tier(int(weighed.tier[worker])),
            belief=float(fleet.beliefs.values[worker]),
            requests_in_flight=int(fleet.in_flight.requests[worker]),
            approximate=worker in fleet.predicted,
        )
        for worker in order.tolist()
        if not is_vacant(fleet.plan.workers[worker])
    )
