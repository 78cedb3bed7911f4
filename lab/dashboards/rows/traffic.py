"""What comes in, and how it ends."""

from lab.dashboards import signals
from lab.dashboards.panels import Colour, Panel, Query, Row, Shape, Unit, Words, steps
from lab.dashboards.promql import Expressions

_READY = {0: Words("not ready", Colour.ACT), 1: Words("ready", Colour.GOOD)}


def traffic(metrics: Expressions) -> Row:
    """Rates, outcomes and refusals."""
    requests = "kvcompass_edge_requests_total"
    return Row(
        100,
        "Traffic",
        (
            Panel(
                id=101,
                title="Requests by region",
                description="Requests that ended at each region's edges, a second. One region falling to "
                "nothing while others rise: its edge is not ready, or its clients were moved.",
                unit=Unit.REQUESTS_A_SECOND,
                queries=(Query(metrics.rate(requests, "region"), "{{region}}"),),
            ),
            Panel(
                id=102,
                title="Outcomes",
                description="How requests end, a second. Grey: the client's doing. Yellow: the edge is full "
                "or starting. Red: workers or the edge failed.",
                unit=Unit.REQUESTS_A_SECOND,
                queries=(Query(metrics.rate(requests, "outcome"), "{{outcome}}"),),
                stacked=True,
                colours={outcome.value: colour for outcome, colour in signals.OUTCOME_COLOURS.items()},
            ),
            Panel(
                id=103,
                title="Error share by region",
                description="Requests that failed by our doing, of all that ended in a region. In one "
                "region only: look at its workers; in all: at the newest release, or the plan.",
                unit=Unit.SHARE,
                queries=(Query(signals.error_share(metrics, "region"), "{{region}}"),),
                steps=steps(watch=signals.ERROR_SHARE_WATCH, act=signals.ERROR_SHARE_ACT),
            ),
            Panel(
                id=104,
                title="Requests in progress",
                description="Requests that each region's edges hold open now. Growing while the rate does "
                "not: answers take longer, or clients read slowly.",
                unit=Unit.COUNT,
                queries=(Query(metrics.sum("kvcompass_edge_requests_in_progress", "region"), "{{region}}"),),
            ),
            Panel(
                id=105,
                title="Attempts after the first",
                description="Further attempts of requests before their first byte, a minute, by what went "
                "wrong with the one before. status_503: a worker asked to be left alone; unreachable or "
                "silent: it may be dead.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(Query(metrics.a_minute("kvcompass_edge_retries_total", "cause"), "{{cause}}"),),
                stacked=True,
            ),
            Panel(
                id=106,
                title="Edges ready",
                description="Whether balancers may send requests to each edge. Not ready: its /ready says "
                "which shard is not loaded, or that it drains.",
                unit=Unit.STATE,
                queries=(Query(metrics.min("kvcompass_edge_ready", "region"), "{{region}}"),),
                shape=Shape.STATES,
                words=_READY,
            ),
            Panel(
                id=107,
                title="Connections cut",
                description="Connections that broke a bound of their listener, a minute, by reason: too "
                "many, headers too large or too late, an answer that is not read. Steady: raise the bound "
                "or find the client.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(metrics.a_minute("kvcompass_http_cut_connections_total", "reason"), "{{reason}}"),
                ),
                width=12,
                stacked=True,
            ),
            Panel(
                id=108,
                title="Prompts without keys",
                description="Prompts that are routed by load alone, a minute, by reason: the client keeps "
                "their cache apart, or they are not text. Many of them lower the reuse share.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(metrics.a_minute("kvcompass_edge_unkeyed_requests_total", "reason"), "{{reason}}"),
                ),
                width=12,
                stacked=True,
            ),
        ),
    )
