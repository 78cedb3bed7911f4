"""The series an edge can foresee, born at 0: one born at 1 never shows the rise that made it."""

from itertools import product

from kvcompass.fleet.load import LoadVerdict
from kvcompass.plan.model import Plan
from kvcompass.roles.attempts import Fault
from kvcompass.roles.messages import PrefillOutcome
from kvcompass.routing.decision import Reason
from services.edge.forwarding.forward import DENIED_STATUSES, RETRIED_STATUSES
from services.edge.metrics import EdgeMetrics, Outcome
from services.edge.requests.prompts import Unkeyed
from services.edge.requests.request_body import Endpoint

_NEVER_RETRIED = (Fault.REFUSED, Fault.CANCELLED)
"""The first is counted by its status."""


def foresee(metrics: EdgeMetrics, plan: Plan, region: str) -> None:
    """Makes the series of every closed set of labels, for the edge of `region`. Touches no value."""
    others = [name for name in plan.regions if name != region]
    for endpoint, outcome in product(Endpoint, Outcome):
        metrics.requests.labels(endpoint, outcome)
    for endpoint, worker_region in product(Endpoint, plan.regions):
        metrics.ttft.labels(endpoint, worker_region)
    for reason, worker_region in product(Reason, plan.regions):
        metrics.decisions.labels(reason.value, worker_region)
    for unkeyed in Unkeyed:
        metrics.unkeyed.labels(unkeyed)
    for worker in plan.workers:
        for counter in (metrics.claimed, metrics.reused, metrics.prompt):
            counter.labels(worker.id)
    for fault in Fault:
        if fault not in _NEVER_RETRIED:
            metrics.retries.labels(fault.value)
    for status in sorted(RETRIED_STATUSES | DENIED_STATUSES):
        metrics.retries.labels(f"status_{status}")
    for origin, outcome in product(others, Outcome):
        metrics.peer_requests.labels(origin, outcome)
    for source, process in product(("agent", "broadcast"), ("same", "another")):
        metrics.superseded.labels(source, process)
    for use in ("sent", "unsent"):
        metrics.replica_asks.labels(use)
    for ended in (*PrefillOutcome, "other"):
        metrics.replica_outcomes.labels(ended)
    for source, verdict in product(("agent", "broadcast", "piggyback"), LoadVerdict):
        metrics.loads.labels(source, verdict.value)
