"""What wakes a person, and what that person does first."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from lab.dashboards import signals
from lab.dashboards.promql import ALERTS, Expressions
from lab.netem import names as wan


class Severity(StrEnum):
    """How soon."""

    PAGE = "page"
    """Now."""
    TICKET = "ticket"
    """In working hours."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule. `summary` and `runbook` may use Prometheus's `{{ $labels.name }}`."""

    name: str
    expression: str
    lasting: str
    """How long the expression must hold, as Prometheus writes durations."""
    severity: Severity
    summary: str
    runbook: str


def alerts() -> Iterator[Alert]:
    """All rules. Errors: ExpressionError."""
    metrics = Expressions(ALERTS)
    yield Alert(
        "KVCompassProcessDown",
        f"{signals.processes_down(metrics, 'job', 'instance', 'region')} > 0",
        "1m",
        Severity.PAGE,
        "{{ $labels.job }} {{ $labels.instance }} in {{ $labels.region }} does not answer its scraper.",
        "See whether it runs, and its last log lines; other alerts of the region may follow from it.",
    )
    yield Alert(
        "KVCompassEdgeNotReady",
        f"{metrics.min('kvcompass_edge_ready', 'instance', 'region')} == 0",
        "1m",
        Severity.PAGE,
        "{{ $labels.instance }} in {{ $labels.region }} takes no requests.",
        "Its /ready names the reason: a shard that is not loaded (see to that unit), or that it drains.",
    )
    yield Alert(
        "KVCompassShardNotExact",
        f"{signals.shards_not_exact(metrics, 'instance', 'region', 'shard')} > 0",
        "1m",
        Severity.PAGE,
        "The view of shard {{ $labels.shard }} at {{ $labels.instance }} is not exact for a minute.",
        "The same shard at every edge: its maintenance unit; at one edge only: the way from it to the unit.",
    )
    yield Alert(
        "KVCompassWorkerUnreachable",
        f"{metrics.sum('kvcompass_worker_agent_state', 'worker', 'region', state=signals.SILENT_WORKER)} > 0",
        "30s",
        Severity.PAGE,
        "{{ $labels.worker }} in {{ $labels.region }} does not answer its agent, or contradicts the plan.",
        "The agent's /health says which: restart the engine, or give it the plan's model and block size.",
    )
    yield Alert(
        "KVCompassErrorShare",
        f"{signals.error_share(metrics, 'region')} > {signals.ERROR_SHARE_ACT:g}",
        "2m",
        Severity.PAGE,
        "{{ $value | humanizePercentage }} of the requests in {{ $labels.region }} fail.",
        "Outcomes on the dashboard say how: no_worker and engine_failed are the workers', overloaded is "
        "capacity, internal is in the edge's log.",
    )
    yield Alert(
        "KVCompassWanPartition",
        f"{metrics.max(wan.PARTITIONED, 'origin', 'destination')} == 1",
        "30s",
        Severity.TICKET,
        "The way from {{ $labels.origin }} to {{ $labels.destination }} is cut.",
        "Each side serves on with its own workers. Heal it, then see that all shards grow exact again.",
    )
    version = "kvcompass_plan_version"
    yield Alert(
        "KVCompassPlanVersionsDiffer",
        f"{metrics.max(version)} - {metrics.min(version)} > 0",
        "15m",
        Severity.TICKET,
        "A change of the plan has not reached every component.",
        "Run kvcompass plan apply with the newest file again: it goes on, and says who is missing and why.",
    )
