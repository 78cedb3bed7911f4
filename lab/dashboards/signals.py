"""What the first row shows and the alerts act on: said once."""

from collections.abc import Mapping
from typing import Final

from kvcompass.plan.model import RoutingRule
from kvcompass.roles.agent_state import AgentState
from kvcompass.roles.index_follower import STALE_AFTER_US, FollowerState
from kvcompass.roles.resubscribe import ResubscribeReason
from kvcompass.roles.worker_source import Registration
from lab.dashboards.catalogue import Job
from lab.dashboards.panels import Colour
from lab.dashboards.promql import Expressions, aggregate, share
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

TTFT_WATCH_S: Final = 3
TTFT_ACT_S: Final = 10
"""After so long a person does something else."""
QUEUE_WATCH_MS: Final = 1_000 * TTFT_WATCH_S
QUEUE_ACT_MS: Final = 1_000 * TTFT_ACT_S
"""A queue alone makes the TTFT too long."""

VIEW_STALE_S: Final = STALE_AFTER_US / 1e6
"""An edge calls a silent view STALE after this."""

SNAPSHOT_PERIODS_ACT: Final = 3
"""Periods after which a unit's own snapshot ought to have been written, whatever the disk was doing."""

REPLACED_ACT: Final = 6
"""A minute. Two that take turns do so at least every 2 s each; a connection that breaks leaves one behind,
if one side alone notices."""
OVERTAKEN_ACT: Final = 6
"""Loads of agents, a minute. A stream's own come in order."""

LEASE_MS: Final = RoutingRule().lease_ms
"""A load that is older counts as unknown, unless the plan says otherwise."""
EVENT_LAG_ACT_MS: Final = LEASE_MS / 6
"""An agent whose engine's events wait for longer renews no lease."""

SILENT_WORKER: Final = (AgentState.UNREACHABLE.value, AgentState.REFUSED.value)

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
    requests = "kvcompass_edge_requests_total"
    return share(metrics.rate(requests, *by, outcome=FAILURES), metrics.rate(requests, *by))


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
