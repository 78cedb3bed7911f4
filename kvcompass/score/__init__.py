"""The joint score (paper 3.4): one function a term, and their sum over all workers at once."""

from kvcompass.score.joint import JointScore, ScoreInputs
from kvcompass.score.terms import capacity_price, effective_match, recompute_ms, reload_ms

__all__ = ["JointScore", "ScoreInputs", "capacity_price", "effective_match", "recompute_ms", "reload_ms"]
