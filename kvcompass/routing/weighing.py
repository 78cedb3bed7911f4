"""Weighs a request, whose matches are known or still to be looked up."""

from kvcompass.routing.candidates import CandidateSet
from kvcompass.routing.request import RoutingRequest
from kvcompass.score import JointScore, Weighed


def weigh(score: JointScore, request: RoutingRequest, candidates: CandidateSet, turn: int) -> Weighed:
    """Score the request at every worker; `turn` decides among equals."""
    standings, expected = candidates.standings, request.expected_tokens
    if request.matches is None:
        return score.match_and_weigh(
            request.keys, expected, standings, request.prompt_tokens, turn, request.answer_tokens
        )
    return score.weigh(
        request.matches, expected, standings, request.prompt_tokens, turn, request.answer_tokens
    )
