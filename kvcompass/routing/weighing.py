"""A request against every worker: what each is credited with, and the joint score of that."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcompass.fleet.view import FleetView
from kvcompass.routing.candidates import CandidateSet
from kvcompass.routing.request import RoutingRequest
from kvcompass.score.joint import JointScore, ScoreInputs
from kvcompass.tier import Tier


@dataclass(frozen=True, slots=True)
class Weighed:
    """Arrays over workers."""

    credited: NDArray[np.int32]
    """int32[W]: the longer of the indexed and the expected match, tokens."""
    tier: NDArray[np.uint8]
    """uint8[W]: of what is credited; an expected match will be in VRAM."""
    score: JointScore


def weigh(fleet: FleetView, request: RoutingRequest, candidates: CandidateSet) -> Weighed:
    """Score a request. Changes nothing; the fleet must be refreshed."""
    credited, tier = request.matches.match_tokens, request.matches.tier
    if request.expected_tokens is not None:
        tier = np.where(request.expected_tokens > credited, np.uint8(Tier.VRAM), tier)
        credited = np.maximum(credited, request.expected_tokens)
    inputs = ScoreInputs(
        fleet.wan_ms,
        fleet.queue_ms,
        fleet.prefill_ms_per_token,
        fleet.reload_ms_per_token,
        fleet.beliefs.values,
        credited,
        tier,
        candidates.bar_ms,
        request.prompt_tokens,
    )
    rule = fleet.plan.routing
    return Weighed(credited, tier, JointScore.of(inputs, rule.queue_scale_ms, rule.capacity_price_max))
