"""Puts a name to why the least score was the least."""

import numpy as np

from kvcompass.fleet.view import FleetView, Standing
from kvcompass.routing.candidates import CandidateSet
from kvcompass.routing.decision import Reason
from kvcompass.routing.request import RoutingRequest
from kvcompass.routing.weighing import Weighed


def reason_for(
    worker: int, fleet: FleetView, request: RoutingRequest, candidates: CandidateSet, weighed: Weighed
) -> Reason:
    """Why `worker`, which has the least score, was chosen (the order is that of `Reason`)."""
    if candidates.standing is Standing.SUSPECTED:
        return Reason.ONLY_SUSPECTED
    if candidates.standing is Standing.UNKNOWN:
        return Reason.ONLY_UNKNOWN_LOAD
    if candidates.count == 1:
        return Reason.ONLY_CANDIDATE
    credited = int(weighed.credited[worker])
    if credited > int(request.matches.match_tokens[worker]):
        return Reason.EXPECTED_MATCH
    longest = int((weighed.credited * candidates.mask).max())
    if longest == 0:
        return Reason.NO_MATCH
    if credited == longest:
        return Reason.LONGEST_MATCH_LOCAL if fleet.is_local[worker] else Reason.LONGEST_MATCH_REMOTE
    return _what_the_holder_lost_by(worker, longest, fleet, weighed)


def _what_the_holder_lost_by(worker: int, longest: int, fleet: FleetView, weighed: Weighed) -> Reason:
    """The term in which the best-scored holder of the longest match is furthest behind."""
    totals = np.where(weighed.credited == longest, weighed.score.total_ms, np.inf)
    holder = int(totals.argmin())
    score = weighed.score
    compute = score.recompute_ms + score.reload_ms
    behind = {
        Reason.LESS_LOADED: float(fleet.queue_ms[holder] - fleet.queue_ms[worker]),
        Reason.NEARER: float(fleet.wan_ms[holder] - fleet.wan_ms[worker]),
        Reason.CHEAPER: float(compute[holder] - compute[worker]),
    }
    return max(behind, key=behind.__getitem__)
