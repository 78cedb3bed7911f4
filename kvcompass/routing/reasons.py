"""Puts a name to why the least score was the least."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.view import FleetView, Standing
from kvcompass.routing.candidates import CandidateSet
from kvcompass.routing.decision import Reason
from kvcompass.routing.request import RoutingRequest
from kvcompass.score import Weighed


def reason_for(
    fleet: FleetView, request: RoutingRequest, candidates: CandidateSet, weighed: Weighed
) -> Reason:
    """Why the worker of least score was chosen (the order is that of `Reason`)."""
    if candidates.standing is Standing.SUSPECTED:
        return Reason.ONLY_SUSPECTED
    if candidates.standing is Standing.UNKNOWN:
        return Reason.ONLY_UNKNOWN_LOAD
    if candidates.count == 1:
        return Reason.ONLY_CANDIDATE
    worker = weighed.worker
    credited = weighed.match_tokens.item(worker)
    expected = request.expected_at(worker)
    if expected > credited:
        return Reason.APPROXIMATE_MATCH if worker in fleet.predicted else Reason.EXPECTED_MATCH
    if weighed.other_best > weighed.longest:
        return Reason.HOLDER_UNAVAILABLE
    if weighed.longest == 0:
        return Reason.NO_MATCH
    if credited == weighed.longest:
        return Reason.LONGEST_MATCH_LOCAL if fleet.is_local[worker] else Reason.LONGEST_MATCH_REMOTE
    return _what_the_holder_lost_by(fleet, weighed)


def _what_the_holder_lost_by(fleet: FleetView, weighed: Weighed) -> Reason:
    """The term in which the best-scored holder of the longest match is furthest behind."""

    def behind(term: NDArray[np.float64]) -> float:
        return term.item(holder) - term.item(worker)

    holder, worker = weighed.holder, weighed.worker
    less_loaded = behind(fleet.queue_ms) + behind(weighed.decode_ms)
    nearer = behind(fleet.wan_charge_ms)
    cheaper = behind(weighed.recompute_ms) + behind(weighed.reload_ms)
    if less_loaded >= nearer and less_loaded >= cheaper:
        return Reason.LESS_LOADED
    return Reason.NEARER if nearer >= cheaper else Reason.CHEAPER
