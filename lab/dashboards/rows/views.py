"""The index: whether the edges' views are the units' tables, and the units' tables what engines hold."""

from kvcompass.roles.index_follower import FollowerState
from lab.dashboards import signals
from lab.dashboards.panels import Colour, Panel, Query, Row, Shape, Unit, Words, steps
from lab.dashboards.promql import Expressions

VIEW_STATES = {
    FollowerState.EXACT: Colour.GOOD,
    FollowerState.CATCHING_UP: Colour.NEUTRAL,
    FollowerState.STALE: Colour.WATCH,
    FollowerState.ABSENT: Colour.ACT,
}


def views(metrics: Expressions) -> Row:
    """States, ages, gaps, lags."""
    shard = "{{region}} shard {{shard}}"
    states = [state.value for state in VIEW_STATES]
    return Row(
        500,
        "Views: age and gaps",
        (
            Panel(
                id=501,
                title="Views by edge and shard",
                description="exact: equal to the unit's table. catching_up: loading, or not verified yet. "
                "stale: read, though nothing was heard for some seconds. absent: never loaded, skipped. "
                "One shard everywhere: its unit; one edge with all shards: the edge or its network.",
                unit=Unit.STATE,
                queries=(
                    Query(metrics.state("kvcompass_edge_view_state", states, "region", "shard"), shard),
                ),
                shape=Shape.STATES,
                words={
                    code: Words(state.value, colour)
                    for code, (state, colour) in enumerate(VIEW_STATES.items())
                },
            ),
            Panel(
                id=502,
                title="Age of views",
                description="Since a unit last changed or confirmed each view; units confirm when idle too. "
                "Beyond the dashed line decisions count as blind.",
                unit=Unit.SECONDS,
                queries=(Query(metrics.max("kvcompass_edge_view_age_seconds", "region", "shard"), shard),),
                steps=steps(watch=signals.VIEW_STALE_S / 2, act=signals.VIEW_STALE_S),
            ),
            Panel(
                id=503,
                title="Streams given up",
                description="Times, a minute, that an edge gave up a shard's stream for a new one. lost and "
                "silence: the network or the unit. gap, behind, digest, broken: a fault worth a report. "
                "moved, unavailable: edges that learn from edges, choosing whom they follow.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_edge_view_resubscriptions_total", "reason"), "{{reason}}"
                    ),
                ),
                stacked=True,
            ),
            Panel(
                id=504,
                title="Replication lag",
                description="Patch groups that a unit's slowest edge has not acknowledged, and keys whose "
                "edits wait at agents. Growing without end: the edge, or the way to it, is too slow.",
                unit=Unit.COUNT,
                queries=(
                    Query(
                        metrics.max("kvcompass_maintenance_subscriber_lag_groups", "instance"),
                        "{{instance}} groups",
                    ),
                    Query(metrics.sum("kvcompass_worker_agent_pending_keys", "unit"), "to {{unit}} keys"),
                ),
            ),
            Panel(
                id=505,
                title="Entries",
                description="Keys in each unit's shard. Falling at once: workers were cleared or their "
                "leases ended. Growing beyond expected_entries of the plan costs a rebuild.",
                unit=Unit.COUNT,
                queries=(Query(metrics.sum("kvcompass_maintenance_entries", "instance"), "{{instance}}"),),
            ),
            Panel(
                id=506,
                title="Patch groups applied",
                description="Changes of the index that reach each edge's views, a second. None while "
                "requests are answered: agents do not reach the units, or engines publish no events.",
                unit=Unit.EVENTS_A_SECOND,
                queries=(
                    Query(metrics.rate("kvcompass_edge_view_patch_groups_total", "region"), "{{region}}"),
                ),
            ),
            Panel(
                id=507,
                title="Digest mismatches",
                description="Views that differed from their table, and holdings that differed from what a "
                "unit had, a minute. They heal by themselves (snapshot, full report); any that recur are "
                "a fault worth a report.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_edge_view_digest_mismatches_total", "region"),
                        "view in {{region}}",
                    ),
                    Query(
                        metrics.a_minute("kvcompass_maintenance_digest_mismatches_total", "instance"),
                        "holdings at {{instance}}",
                    ),
                ),
                steps=steps(watch=1),
            ),
            Panel(
                id=508,
                title="Event gaps",
                description="Times, a minute, that an agent missed batches of its engine, and batches that "
                "no replay brought back. Lost ones leave the worker partial: enlarge buffer_steps of the "
                "engine's KV events.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_worker_agent_holes_total", "worker"), "{{worker}} gaps"
                    ),
                    Query(
                        metrics.a_minute("kvcompass_worker_agent_lost_batches_total", "worker"),
                        "{{worker}} lost",
                    ),
                ),
            ),
            Panel(
                id=509,
                title="Snapshots and full reports",
                description="Whole tables sent to edges, and whole holdings sent to units, a minute: after "
                "a start, a loss or a rebuild. Steady ones use the WAN for nothing: look for who falls "
                "behind.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_edge_view_snapshots_total", "region"),
                        "snapshots in {{region}}",
                    ),
                    Query(
                        metrics.a_minute("kvcompass_maintenance_full_reports_total", "instance"),
                        "reports at {{instance}}",
                    ),
                ),
            ),
            Panel(
                id=510,
                title="Who feeds the views",
                description="Shards by region: fed by their units, or by another edge of the region "
                "(upstream = edge). Where edges are to be fed by one, all but that one's shards are "
                "from an edge; more from units for long: the first edge cannot be reached or cannot serve.",
                width=6,
                unit=Unit.COUNT,
                queries=(
                    Query(
                        metrics.sum("kvcompass_edge_view_source", "region", "source"),
                        "{{region}} by {{source}}",
                    ),
                ),
            ),
            Panel(
                id=511,
                title="Edges left for the units",
                description="Times, a minute, that an edge gave up another one that fed it, or that could "
                "not serve yet. lost, silence: that edge or the way to it. digest, broken: it passed on "
                "what is wrong, which is a fault worth a report.",
                width=6,
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(metrics.a_minute("kvcompass_edge_view_fallbacks_total", "reason"), "{{reason}}"),
                ),
                stacked=True,
            ),
            Panel(
                id=512,
                title="Passed on to other edges",
                description="Streams of other edges that an edge serves, and those of them, a minute, that "
                "fell behind what it keeps and were sent a snapshot. Such ones again and again: that edge "
                "is too slow, or relay.log_bytes of this one too small.",
                width=6,
                unit=Unit.COUNT,
                queries=(
                    Query(metrics.sum("kvcompass_edge_relay_subscribers", "region"), "{{region}} streams"),
                    Query(
                        metrics.a_minute("kvcompass_edge_relay_overflows_total", "region"),
                        "{{region}} fell behind",
                    ),
                ),
            ),
            Panel(
                id=513,
                title="Streams whose edge takes nothing",
                description="Streams, a minute, that a unit or an edge ended since the edge at the other "
                "end took no message for 10 s. It begins anew by itself; again and again: it has no CPU, is "
                "stopped, or the way to it carries nothing. The log of who ended them names it.",
                width=6,
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_maintenance_stalled_total", "instance"), "{{instance}}"
                    ),
                    Query(metrics.a_minute("kvcompass_edge_relay_stalled_total", "instance"), "{{instance}}"),
                ),
                steps=steps(watch=1),
            ),
        ),
    )
