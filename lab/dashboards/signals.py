"""What the first row shows and the alerts act on: said once."""

from collections.abc import Mapping
from typing import Final

from kvcompass.plan.model import RoutingRule
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.index_follower import STALE_AFTER_US, FollowerState
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.worker_source import Registration
from lab.dashboards.catalogue import SERVICES, Job
from lab.dashboards.panels import Colour
from lab.dashboards.promql import Expressions, aggregate, share
from services.edge.forwarding.forward import DENIED_STATUSES
from services.edge.metrics import Outcome

OUTCOME_COLOURS: Final[Mapping[Outcome, Colour]] = {
    Outcome.OK: Colour.GOOD,
    Outcome.REJECTED: Colour.ABSENT,
    Outcome.UNAUTHORIZED: Colour.ABSENT,
    Outcome.ENGINE_REFUSED: Colour.ABSENT,
    Outcome.CANCELLED: Colour.ABSENT,
    Outcome.OVERLOADED: Colour.WATCH,
    Outcome.NO_WORKER: Colour.ACT,
    Outcome.ENGINE_FAILED: Colour.ACT,
    Outcome.TIMEOUT: Colour.ACT,
    Outcome.CUT: Colour.ACT,
    Outcome.INTERNAL: Colour.ACT,
}
"""ABSENT: the client's doing. WATCH and ACT: ours."""

FAILURES: Final = tuple(
    outcome.value for outcome, colour in OUTCOME_COLOURS.items() if colour in (Colour.WATCH, Colour.ACT)
)
"""Outcomes that a client may complain about."""

ERROR_SHARE_WATCH: Final = 0.01
"""What a promise of 99 % allows: more uses it up."""
ERROR_SHARE_ACT: Final = 0.05
"""A week of the promise's failures is used up in a day and a half."""
REFUSED: Final = (Outcome.UNAUTHORIZED.value, Outcome.ENGINE_REFUSED.value)
"""Outcomes of a key or a setting that was changed on one side only, as soon as they are many."""
REFUSED_SHARE_ACT: Final = 0.3
"""Some clients always have an old key or ask for what no engine does; a third of them do not."""
QUIET_PER_S: Final = 0.1
"""Of fewer requests one alone is a large share: the only one of a region that fails is 100 %."""

TTFT_WATCH_S: Final = 3
TTFT_ACT_S: Final = 10
"""After so long a person does something else."""
QUEUE_WATCH_MS: Final = 1_000 * TTFT_WATCH_S
QUEUE_ACT_MS: Final = 1_000 * TTFT_ACT_S
"""A queue alone makes the TTFT too long."""

WRONG_CLAIMS_ACT: Final = 10
"""A minute, of one worker. Nobody counts claims, so it is no share: a cost instead. Ten prompts of 4,096
tokens that are computed where they were to be reused take an A100 3 s of each minute, a twentieth. Right are
none: docs/reproduction/degraded.md finds one in 10,000 requests, patches lost or late included."""

FILES_ACT: Final = 0.8
"""Of the files that a process may open. Each connection is one, and they come by the hundred."""

VIEW_STALE_S: Final = STALE_AFTER_US / 1e6
"""An edge calls a silent view STALE after this."""

SNAPSHOT_PERIODS_ACT: Final = 3
"""Periods after which a unit's own snapshot ought to have been written, whatever the disk was doing."""

REPLACED_ACT: Final = 6
"""A minute. Two that take turns do so at least every 2 s each; a connection that breaks leaves one behind,
if one side alone notices."""
OVERTAKEN_ACT: Final = 6
"""Loads of agents, a minute. A stream's own come in order."""

DENIED: Final = tuple(f"status_{status}" for status in sorted(DENIED_STATUSES))
"""Attempts that ended with a key not taken."""
CERTIFICATE_ACT_S: Final = 14 * 86_400
"""Two weeks: to have a certificate made, and every process restarted one by one."""

LEASE_MS: Final = RoutingRule().lease_ms
"""A load that is older counts as unknown, unless the plan says otherwise."""
EVENT_LAG_ACT_MS: Final = LEASE_MS / 6
"""An agent whose engine's events wait for longer renews no lease."""

SILENT_WORKER: Final = (AgentState.UNREACHABLE.value, AgentState.REFUSED.value)

_REQUESTS: Final = "kvcompass_edge_requests_total"
_UNREGISTERED: Final = (Registration.ABSENT.value, Registration.ENDED.value)
_BROKEN: Final = tuple(
    reason.value
    for reason in (
        ResubscribeReason.GAP,
        ResubscribeReason.BEHIND,
        ResubscribeReason.DIGEST,
        ResubscribeReason.BROKEN,
    )
)
_NOT_EXACT: Final = tuple(state.value for state in FollowerState if state is not FollowerState.EXACT)


def error_share(metrics: Expressions, *by: str) -> str:
    """Requests that failed by our doing, of all."""
    return share(metrics.rate(_REQUESTS, *by, outcome=FAILURES), metrics.rate(_REQUESTS, *by))


def refused_share(metrics: Expressions, *by: str) -> str:
    """Requests that were refused for a key, or by an engine, of all."""
    return share(metrics.rate(_REQUESTS, *by, outcome=REFUSED), metrics.rate(_REQUESTS, *by))


def unless_quiet(metrics: Expressions, *outcomes: str) -> str:
    """To be put behind a comparison by region: holds where so many requests end that a share says something.

    `outcomes`: of these alone; none: of all.
    """
    where = {"outcome": outcomes} if outcomes else {}
    return f"and on (region) {metrics.rate(_REQUESTS, 'region', **where)} >= {QUIET_PER_S:g}"


def reuse_share(metrics: Expressions, *by: str) -> str:
    """Prompt tokens that engines took from a cache, of all."""
    return share(
        metrics.rate("kvcompass_edge_reused_tokens_total", *by),
        metrics.rate("kvcompass_edge_prompt_tokens_total", *by),
    )


def shards_not_exact(metrics: Expressions, *by: str) -> str:
    """Pairs of an edge and a shard whose view is not known to equal its unit's table."""
    return metrics.sum("kvcompass_edge_view_state", *by, state=_NOT_EXACT)


def processes_down(metrics: Expressions, *by: str) -> str:
    """Scraped processes that do not answer."""
    jobs = [job.value for job in Job]
    return f"{metrics.count('up', *by, job=jobs)} - {metrics.sum('up', *by, job=jobs)}"


def files_in_use(metrics: Expressions, *by: str) -> str:
    """Open files of services, of those that each may open. Other programs export the same names."""
    services = [job.value for job in SERVICES]
    used = metrics.max("process_open_fds", *by, job=services)
    return f"{used} / {metrics.max('process_max_fds', *by, job=services)}"


def contents_differ(metrics: Expressions) -> str:
    """Holds while one version of the plan runs with several contents, as far as builds can be compared.

    A newer build may know a field that an older one does not, and so takes one file for another plan: while
    versions run side by side, which is an upgrade, nothing is said.
    """
    content = "kvcompass_plan_content"
    builds = aggregate("count", metrics.count("kvcompass_build_info", "version"))
    return f"(({metrics.max(content)} - {metrics.min(content)} > 0) unless {builds} > 1)"


def crossing_share(metrics: Expressions, *by: str) -> str:
    """Decisions for a worker of another region, of all. `by`: `region`, or nothing."""
    decisions = "kvcompass_edge_decisions_total"
    pairs = metrics.rate(decisions, "region", "worker_region")
    # An edge's own region, as a worker's: marks the pairs that stay at home.
    marks = f'label_replace({metrics.rate(decisions, "region")}, "worker_region", "$1", "region", "(.*)")'
    crossing = f"{pairs} unless on (region, worker_region) {marks}"
    return share(aggregate("sum", crossing, *by), aggregate("sum", pairs, *by))


def snapshot_periods(metrics: Expressions, *by: str) -> str:
    """Age of units' own snapshots, in the periods at which they are written."""
    age = metrics.max("kvcompass_unit_snapshot_age_seconds", *by)
    return f"{age} / {metrics.max('kvcompass_unit_snapshot_period_seconds', *by)}"


def unregistered(metrics: Expressions, *by: str) -> str:
    """Workers without a lease at a unit: nobody is routed to their caches for that unit's keys."""
    return metrics.sum("kvcompass_maintenance_worker_registration", *by, state=_UNREGISTERED)


def unheard_at_home(metrics: Expressions, *by: str) -> str:
    """Standing of workers at the edges of their own region, which their agents report to: 1 is unknown."""
    name = "kvcompass_edge_worker_standing"
    standing = metrics.max(name, *by, "region", "worker_region")
    # An edge's own region, as a worker's: marks the workers that are at home there.
    marks = f'label_replace({metrics.max(name, "region")}, "worker_region", "$1", "region", "(.*)")'
    return aggregate("max", f"{standing} and on (region, worker_region) {marks}", *by)


def replaced_streams(metrics: Expressions, *by: str) -> str:
    """Open streams whose place a newer one of the same process took, a minute.

    Of workers and edges at edges, workers at units, and subscribers at both, whichever there are most of.
    """
    counted = (
        metrics.a_minute("kvcompass_edge_superseded_load_streams_total", *by, process="same"),
        metrics.a_minute("kvcompass_maintenance_superseded_streams_total", *by),
        metrics.a_minute("kvcompass_maintenance_superseded_subscribers_total", *by),
        metrics.a_minute("kvcompass_edge_relay_superseded_subscribers_total", *by),
    )
    return " or ".join(f"{each} > {REPLACED_ACT}" for each in counted)


def broken_streams(metrics: Expressions, *by: str) -> str:
    """Streams of shards given up since what came was wrong or incomplete, a minute."""
    return metrics.a_minute("kvcompass_edge_view_resubscriptions_total", *by, reason=_BROKEN)
