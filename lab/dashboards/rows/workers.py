"""Every worker: what it does, what it is taken for, and who still believes in it."""

from kvcompass.fleet.view import Standing
from kvcompass.roles.agent_state import AgentState
from lab.dashboards import signals
from lab.dashboards.panels import Colour, Panel, Query, Row, Shape, Unit, Words, steps
from lab.dashboards.promql import Expressions

AGENT_STATES = {
    AgentState.EXACT: Colour.GOOD,
    AgentState.PARTIAL: Colour.WATCH,
    AgentState.APPROXIMATE: Colour.WATCH,
    AgentState.ATTACHING: Colour.NEUTRAL,
    AgentState.SILENT: Colour.ACT,
    AgentState.UNREACHABLE: Colour.ACT,
    AgentState.REFUSED: Colour.ACT,
}
STANDINGS = {
    Standing.KNOWN: Colour.GOOD,
    Standing.UNKNOWN: Colour.WATCH,
    Standing.SUSPECTED: Colour.WATCH,
    Standing.OUT: Colour.ACT,
}


def workers(metrics: Expressions) -> Row:
    """Queues, states, leases."""
    states = [state.value for state in AGENT_STATES]
    return Row(
        400,
        "Workers",
        (
            Panel(
                id=401,
                title="Queue by worker",
                description="Estimated delay before a new request's prefill starts, as each worker's agent "
                "reports it. One worker far above the others: its prefix is hot. All high: add workers.",
                unit=Unit.MILLISECONDS,
                queries=(Query(metrics.max("kvcompass_worker_agent_queue_ms", "worker"), "{{worker}}"),),
                steps=steps(watch=signals.QUEUE_WATCH_MS, act=signals.QUEUE_ACT_MS),
            ),
            Panel(
                id=402,
                title="Queue as the edges see it",
                description="The longest queue that any edge believes each worker to have, its own work in "
                "flight included. Far above what the agent reports: the edge's news of it are old.",
                unit=Unit.MILLISECONDS,
                queries=(Query(metrics.max("kvcompass_edge_worker_queue_ms", "worker"), "{{worker}}"),),
                steps=steps(watch=signals.QUEUE_WATCH_MS, act=signals.QUEUE_ACT_MS),
            ),
            Panel(
                id=403,
                title="Requests in the engines",
                description="Requests that each engine computes, and that wait in it, by its own count. "
                "Waiting while other workers idle: see decisions by reason in row Reuse.",
                unit=Unit.COUNT,
                queries=(
                    Query(metrics.sum("sglang:num_running_reqs", "worker"), "{{worker}} running"),
                    Query(metrics.sum("sglang:num_queue_reqs", "worker"), "{{worker}} waiting"),
                ),
            ),
            Panel(
                id=404,
                title="KV pool in use",
                description="Part of each engine's KV tokens that running requests hold. Near one: the "
                "engine evicts and retracts; reuse falls.",
                unit=Unit.SHARE,
                queries=(Query(metrics.max("sglang:token_usage", "worker"), "{{worker}}"),),
                largest=1,
                steps=steps(watch=0.9, act=0.98),
            ),
            Panel(
                id=405,
                title="Worker states",
                description="How well each agent knows its worker. partial: events were lost, so it holds "
                "more than is indexed until its cache is cleared. approximate: by plan edges predict what it "
                "holds. silent: it serves requests and sends no events. unreachable: it does not answer. "
                "refused: it contradicts the plan; the agent's /health says in what.",
                unit=Unit.STATE,
                queries=(
                    Query(metrics.state("kvcompass_worker_agent_state", states, "worker"), "{{worker}}"),
                ),
                shape=Shape.STATES,
                words={
                    code: Words(state.value, colour)
                    for code, (state, colour) in enumerate(AGENT_STATES.items())
                },
            ),
            Panel(
                id=406,
                title="Workers as the edges see them",
                description="The worst that any edge thinks of each worker. unknown: no load within the "
                "lease. suspected: it failed a moment ago. out: draining or unreachable, never chosen.",
                unit=Unit.STATE,
                queries=(Query(metrics.max("kvcompass_edge_worker_standing", "worker"), "{{worker}}"),),
                shape=Shape.STATES,
                words={
                    standing.value: Words(standing.name.lower(), colour)
                    for standing, colour in STANDINGS.items()
                },
            ),
            Panel(
                id=407,
                title="Leases",
                description="Workers with a lease at each maintenance unit, and those whose full report is "
                "awaited. Fewer leases than workers: their agents cannot reach the unit. Awaited for long: "
                "the unit asks and gets nothing.",
                unit=Unit.COUNT,
                queries=(
                    Query(metrics.min("kvcompass_maintenance_live_workers", "instance"), "{{instance}} live"),
                    Query(
                        metrics.max("kvcompass_maintenance_awaited_workers", "instance"),
                        "{{instance}} awaited",
                    ),
                ),
            ),
            Panel(
                id=408,
                title="Leases ended",
                description="Workers that a unit cleared from its table since nothing was heard of them, a "
                "minute. Every one is a cache that nobody is routed to until its agent reports again.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_maintenance_leases_ended_total", "instance"),
                        "{{instance}}",
                    ),
                ),
            ),
            Panel(
                id=409,
                title="Age of loads",
                description="How long ago each edge heard of a worker's load, the oldest over all edges. "
                "Beyond the lease it counts as unknown, and the worker is used last.",
                unit=Unit.MILLISECONDS,
                queries=(Query(metrics.max("kvcompass_edge_worker_load_age_ms", "worker"), "{{worker}}"),),
                steps=steps(watch=signals.LEASE_MS / 3, act=signals.LEASE_MS),
            ),
            Panel(
                id=410,
                title="Events that wait",
                description="For how long events of each engine have waited for their agent. Some "
                "milliseconds are right. From a sixth of the lease on the agent renews nothing: give it a "
                "core, or fewer engines.",
                unit=Unit.MILLISECONDS,
                queries=(Query(metrics.max("kvcompass_worker_agent_event_lag_ms", "worker"), "{{worker}}"),),
                steps=steps(watch=signals.EVENT_LAG_ACT_MS / 5, act=signals.EVENT_LAG_ACT_MS),
            ),
            Panel(
                id=411,
                title="Agents that began anew",
                description="Unforeseen errors, a minute, after each of which an agent learns its engine "
                "from the start. None is right: report it, with the agent's log.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(metrics.a_minute("kvcompass_worker_agent_failures_total", "worker"), "{{worker}}"),
                ),
                steps=steps(act=0.1),
            ),
            Panel(
                id=412,
                title="Loads that were not told",
                description="Questions for an engine's load that failed, and published loads that nobody "
                "could read, a minute. Its worker counts as unknown after a lease and is used last: see "
                "whether the engine answers, and what the agent's log says of it.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_worker_agent_load_failures_total", "worker"),
                        "{{worker}} failed",
                    ),
                    Query(
                        metrics.a_minute("kvcompass_worker_agent_malformed_loads_total", "worker"),
                        "{{worker}} unreadable",
                    ),
                ),
                steps=steps(watch=1),
            ),
        ),
    )
