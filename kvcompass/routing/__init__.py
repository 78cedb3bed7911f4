"""From matches and the fleet view to one worker: the decision, its reason and what it was weighed against."""

from kvcompass.routing.decision import Candidate, Decision, NoWorker, NoWorkerReason, Reason
from kvcompass.routing.policies import POLICIES, Policy, make_policy
from kvcompass.routing.request import RoutingRequest

__all__ = [
    "POLICIES",
    "Candidate",
    "Decision",
    "NoWorker",
    "NoWorkerReason",
    "Policy",
    "Reason",
    "RoutingRequest",
    "make_policy",
]
