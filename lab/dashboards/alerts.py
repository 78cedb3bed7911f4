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
from services.edge.metrics import Outcome
from services.runtime.http_bounds import Cut
from services.runtime.plan_desk import Outcome as PlanOutcome


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
    cuts, peers = "kvcompass_http_cut_connections_total", "kvcompass_edge_peer_requests_total"
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
        "KVCompassKeysNotRegistered",
        f"{metrics.max('kvcompass_worker_agent_unregistered_keys', 'worker', 'region')} > 0",
        "15m",
        Severity.TICKET,
        "{{ $labels.worker }} in {{ $labels.region }} holds {{ $value | humanize }} prefixes that no unit is "
        "told of.",
        "It may register no more: raise index.worker_entries_max of the plan or, where that is 0, "
        "expected_entries, and apply.",
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
        "Its log names the edge, at `index stream ended`: see to that. The views are exact meanwhile, by way "
        "of the unit.",
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
        f"{signals.error_share(metrics, 'region')} > {signals.ERROR_SHARE_ACT:g}"
        f" {signals.unless_quiet(metrics, *signals.FAILURES)}",
        "2m",
        Severity.PAGE,
        "{{ $value | humanizePercentage }} of the requests in {{ $labels.region }} fail.",
        "Outcomes on the dashboard say how: no_worker and engine_failed are the workers', overloaded is "
        "capacity, internal is in the edge's log.",
    )
    yield Alert(
        "KVCompassTtftSlow",
        f"{metrics.quantile(0.95, 'kvcompass_edge_ttft_seconds', 'region')} > {signals.TTFT_ACT_S:g}"
        f" {signals.unless_quiet(metrics)}",
        "5m",
        Severity.PAGE,
        "One in twenty clients in {{ $labels.region }} waits {{ $value | humanizeDuration }} or longer for a "
        "first byte.",
        "Queues that rise with it: too little capacity. It alone: longer prompts, or less reuse. A whole "
        "answer, one that is not streamed, counts with its last token: where most are, raise the threshold.",
    )
    yield Alert(
        "KVCompassQueuesLong",
        # Its instance is an edge, which tells what it believes of every worker. The worst counts.
        f"{metrics.max('kvcompass_edge_worker_queue_ms', 'worker', 'worker_region')}"
        f" > {signals.QUEUE_ACT_MS:g}",
        "5m",
        Severity.TICKET,
        "A new request waits {{ $value | humanize }} ms at {{ $labels.worker }} in "
        "{{ $labels.worker_region }}, as some edge has it.",
        "All workers of a region: add workers. One alone: its prefix is hot, or it is slower than its plan "
        "says. One of unknown load is taken to have the longest queue that is known.",
    )
    yield Alert(
        "KVCompassWrongClaims",
        f"{metrics.a_minute('kvcompass_edge_wrong_claims_total', 'worker')} > {signals.WRONG_CLAIMS_ACT}",
        "5m",
        Severity.TICKET,
        "{{ $labels.worker }} reuses less than was claimed, {{ $value | humanize }} times a minute.",
        "One worker: its events are late or lost, or its engine's kind is not what its agent was told. All: "
        "caches are too small, or prompts are not read as the engines read them.",
    )
    yield Alert(
        "KVCompassClientsRefused",
        f"{signals.refused_share(metrics, 'region')} > {signals.REFUSED_SHARE_ACT:g}"
        f" {signals.unless_quiet(metrics, *signals.REFUSED)}",
        "5m",
        Severity.TICKET,
        "{{ $value | humanizePercentage }} of the requests in {{ $labels.region }} are refused.",
        "Outcomes on the dashboard say by whom. unauthorized: api_keys of the edges are not the clients' "
        "keys. engine_refused: engines answer 4xx, so see what clients ask for, and what engines were given: "
        "name, flags, key.",
    )
    yield Alert(
        "KVCompassConnectionsTurnedAway",
        f"{metrics.a_minute(cuts, 'instance', 'listener', reason=Cut.TOO_MANY.value)} > 0",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} turns connections away: its {{ $labels.listener }} listener is full.",
        "public: start another edge, or find who opens connections and leaves them. peer: the edges of "
        "another region. ops: whoever scrapes or asks.",
    )
    yield Alert(
        "KVCompassPeersDenied",
        f"{metrics.a_minute(peers, 'instance', 'region', outcome=Outcome.UNAUTHORIZED.value)} > 0",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} in {{ $labels.region }} is asked by edges whose peer_key is another.",
        "Give all edges one peer_key: the log of the one that is refused has `key not taken`. None has it: "
        "it is no edge; keep that port to edges, by [tls].",
    )
    yield Alert(
        "KVCompassKeyNotTaken",
        f"{metrics.a_minute('kvcompass_edge_retries_total', 'instance', 'region', cause=signals.DENIED)} > 0",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} in {{ $labels.region }} has a key that an engine or an edge does not take.",
        "Its log says `key not taken`, by whom and which setting: give both sides one key, then start anew.",
    )
    yield Alert(
        "KVCompassCertificateEnds",
        f"{metrics.min('kvcompass_tls_not_after_seconds', 'instance', 'file')} - time()"
        f" < {signals.CERTIFICATE_ACT_S}",
        "0m",
        Severity.TICKET,
        "The {{ $labels.file }} of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}.",
        "Put a new one in its place and restart the process; files are read at the start (docs/install.md).",
    )
    yield Alert(
        "KVCompassFilesRunOut",
        f"{signals.files_in_use(metrics, 'instance')} > {signals.FILES_ACT:g}",
        "5m",
        Severity.TICKET,
        "{{ $labels.instance }} has {{ $value | humanizePercentage }} of the files open that it may open.",
        "Connections are files. Raise the hard limit that it is started with (LimitNOFILE, ulimits), of "
        "which it takes up to 65,536. It has them: find who holds its connections.",
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
    settled = "kvcompass_plan_settled"
    yield Alert(
        "KVCompassPlanNotOne",
        f"{metrics.max(version)} - {metrics.min(version)} > 0"
        f" or {signals.contents_differ(metrics)}"
        f" or {metrics.min(settled)} < 1",
        "15m",
        Severity.TICKET,
        "Components run other versions or contents of the plan, or have not settled it.",
        "kvcompass status says who. Run kvcompass plan apply with the newest file again: it goes on.",
    )
    applies = "kvcompass_plan_applies_total"
    not_taken = (PlanOutcome.FAILED.value, PlanOutcome.UNSIGNED.value)
    yield Alert(
        "KVCompassPlanChangeFailed",
        f"{metrics.a_minute(applies, 'instance', 'outcome', outcome=not_taken)} > 0",
        "0m",
        Severity.TICKET,
        "{{ $labels.instance }} was brought a plan and did not take it: {{ $labels.outcome }}.",
        "unsigned: the command has another plan_key than it, or somebody without it asks. failed: its log "
        "has the error; report it, and run kvcompass plan apply again.",
    )
