"""The joint score (paper 3.4) of a request at every worker of the world. Its terms are in `kernels.score`."""

from kvcompass.score.joint import JointScore, ScoreInputs, Standings, Weighed

__all__ = ["JointScore", "ScoreInputs", "Standings", "Weighed"]
