"""What wakes a person, and what that person does first."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kvcompass.fleet.view import Standing
from kvcompass.roles.agent_state import AgentState
from kvcompass.self_test.state import SelfTestResult
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
    silent = AgentState.SILENT.value
    yield Alert(
        "KVCompassWorkerSilent",
        f"{metrics.sum('kvcompass_worker_agent_state', 'worker', 'region', state=silent)} > 0",
        "1m",
        Severity.TICKET,
        "{{ $labels.worker }} in {{ $labels.region }} serves and tells nothing: its cache is used by nobody.",
        "The agent's /health says why: the flag that its engine lacks, or that its publisher is stuck.",
    )
    pending = SelfTestResult.PENDING.value
    yield Alert(
        "KVCompassSelfTestPending",
        f"{metrics.sum('kvcompass_worker_agent_self_test', 'worker', 'region', result=pending)} > 0",
        "15m",
        Severity.TICKET,
        "Nobody knows whether {{ $labels.worker }} in {{ $labels.region }} reads prompts as edges do.",
        "The agent's /health says what it waits for: an edge, the engine's answer, or its events.",
    )
    yield Alert(
        "KVCompassEventsLost",
        f"{metrics.a_minute('kvcompass_worker_agent_lost_batches_total', 'worker', 'region')} > 0",
        "5m",
        Severity.TICKET,
        "Events of {{ $labels.worker }} in {{ $labels.region }} are lost again and again.",
        "The agent or the way to it is too slow, or the engine's replay too short: enlarge buffer_steps.",
    )
    yield Alert(
        "KVCompassEventsWait",
        f"{metrics.max('kvcompass_worker_agent_event_lag_ms', 'worker', 'region')}"
        f" > {signals.EVENT_LAG_ACT_MS:g}",
        "30s",
        Severity.TICKET,
        "Events of {{ $labels.worker }} in {{ $labels.region }} wait for {{ $value | humanize }} ms.",
        "Its agent renews no lease meanwhile: give it a core, or fewer engines; or a replay does not end.",
    )
    yield Alert(
        "KVCompassAgentBeginsAnew",
        f"{metrics.a_minute('kvcompass_worker_agent_failures_total', 'worker', 'region')} > 0",
        "5m",
        Severity.TICKET,
        "The agent of {{ $labels.worker }} in {{ $labels.region }} fails and begins anew, again and again.",
        "Its log has the error: report it. The engine's events of that moment are part of the report.",
    )
    yield Alert(
        "KVCompassWorkerNotRegistered",
        f"{signals.unregistered(metrics, 'worker', 'instance')} > 0",
        "1m",
        Severity.TICKET,
        "{{ $labels.worker }} has no lease at {{ $labels.instance }}: nobody is routed to its cache.",
        "Its agent's /health says why: the engine is down or sends no events, the way to the unit is cut, or "
        "the unit refuses.",
    )
    yield Alert(
        "KVCompassLeasesEnd",
        f"{metrics.a_minute('kvcompass_maintenance_leases_ended_total', 'instance')} > 1",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} clears workers again and again: {{ $value | humanize }} a minute.",
        "An agent or its engine dies and comes back, or the way to it is cut for longer than the lease.",
    )
    yield Alert(
        "KVCompassViewResyncs",
        f"{signals.broken_streams(metrics, 'instance', 'shard')} > 1",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} begins shard {{ $labels.shard }} anew again and again.",
        "gap, behind: patches are lost or the edge is too slow. digest, broken: report it, with both logs.",
    )
    yield Alert(
        "KVCompassEdgeLeavesItsSource",
        f"{metrics.a_minute('kvcompass_edge_view_fallbacks_total', 'instance', 'shard')} > 1",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} keeps leaving the edge that feeds its shard {{ $labels.shard }}.",
        "See to the edge that `fed_by` named last; the views are exact meanwhile, by way of the unit.",
    )
    yield Alert(
        "KVCompassSubscriberStalls",
        f"{metrics.a_minute('kvcompass_maintenance_stalled_total', 'instance')} > 1"
        f" or {metrics.a_minute('kvcompass_edge_relay_stalled_total', 'instance')} > 1",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} keeps ending streams of an edge that takes nothing from them.",
        "Its log names the edge: no CPU, stopped, or a way that carries nothing. Others are not held up.",
    )
    yield Alert(
        "KVCompassUnitSnapshotOld",
        f"{signals.snapshot_periods(metrics, 'instance', 'region')} > {signals.SNAPSHOT_PERIODS_ACT}",
        "1m",
        Severity.TICKET,
        "{{ $labels.instance }} has not written its own snapshot for {{ $value | humanize }} periods.",
        "Its log names the error: a full disk, a wrong mode. A unit that has not settled writes none.",
    )
    yield Alert(
        "KVCompassUnitSnapshotRefused",
        f"{metrics.max('kvcompass_unit_snapshot_refused', 'instance')} == 1",
        "0m",
        Severity.TICKET,
        "{{ $labels.instance }} refused the snapshot that it was to begin with, and began empty.",
        "Agents refill it. The file is kept as .refused beside it: keep it for a report, then delete it.",
    )
    yield Alert(
        "KVCompassTwoSpeakForOne",
        f"{metrics.a_minute('kvcompass_edge_superseded_load_streams_total', 'instance', process='another')}"
        f" > 1 or {metrics.a_minute('kvcompass_maintenance_superseded_agents_total', 'instance')} > 1",
        "3m",
        Severity.PAGE,
        "At {{ $labels.instance }} two processes take turns in speaking for one worker or edge.",
        "Its log names the sender: end the second agent or edge; without TLS, look for who forges.",
    )
    yield Alert(
        "KVCompassStreamsReplaced",
        signals.replaced_streams(metrics, "instance"),
        "3m",
        Severity.TICKET,
        "At {{ $labels.instance }} streams are replaced again and again, by newer ones of the same process.",
        "Connections that break and come back: see to the way. Else somebody speaks in another's name and "
        "epoch: its log names whose; give the fleet TLS.",
    )
    yield Alert(
        "KVCompassWorkerLoadUnknown",
        f"{signals.unheard_at_home(metrics, 'worker', 'instance')} == {Standing.UNKNOWN:d}",
        "1m",
        Severity.TICKET,
        "{{ $labels.instance }} hears nothing of the load of {{ $labels.worker }}, which is of its region.",
        "Chosen last meanwhile. Its agent's /health says why, or that all is well: then see to what is "
        "between, and whether loads are overtaken.",
    )
    yield Alert(
        "KVCompassLoadsOvertaken",
        f"{metrics.a_minute('kvcompass_edge_loads_total', 'instance', source='agent', use='old_sequence')}"
        f" > {signals.OVERTAKEN_ACT}",
        "3m",
        Severity.TICKET,
        "{{ $labels.instance }} drops loads of agents as older than what it has heard.",
        "Two agents of one epoch serve one worker, a copied machine for instance: end one. Else report it.",
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
        "KVCompassUnitNotSettled",
        f"{metrics.min('kvcompass_maintenance_settled', 'instance')} < 1",
        "2m",
        Severity.TICKET,
        "{{ $labels.instance }} began anew, and still waits for agents.",
        "Its /health names the workers that it waits for: see to their agents, and the way to it.",
    )
    content, settled = "kvcompass_plan_content", "kvcompass_plan_settled"
    yield Alert(
        "KVCompassPlanNotOne",
        f"{metrics.max(version)} - {metrics.min(version)} > 0"
        f" or {metrics.max(content)} - {metrics.min(content)} > 0"
        f" or {metrics.min(settled)} < 1",
        "15m",
        Severity.TICKET,
        "Components run other versions or contents of the plan, or have not settled it.",
        "kvcompass status says who. Run kvcompass plan apply with the newest file again: it goes on.",
    )
