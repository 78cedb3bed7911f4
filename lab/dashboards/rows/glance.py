"""The first screen: is anything wrong, and which row below says more."""

from lab.dashboards import signals
from lab.dashboards.panels import NO_STEPS, Panel, Query, Row, Shape, Step, Unit, steps
from lab.dashboards.promql import Expressions

_NO_TRAFFIC = "no traffic"


def glance(metrics: Expressions) -> Row:
    """Eight numbers; a red one is for a person."""
    return Row(
        1,
        "At a glance",
        (
            _number(
                2,
                "Requests",
                "Requests that ended, a second, whatever their outcome. Row Traffic has them by region.",
                Unit.REQUESTS_A_SECOND,
                metrics.rate("kvcompass_edge_requests_total"),
            ),
            _number(
                3,
                "Error share",
                "Requests that failed by our doing (not the client's), of all. Red: the outcomes in row "
                "Traffic name the cause.",
                Unit.SHARE,
                signals.error_share(metrics),
                steps(watch=signals.ERROR_SHARE_WATCH, act=signals.ERROR_SHARE_ACT),
                nothing=_NO_TRAFFIC,
            ),
            _number(
                4,
                "TTFT P95",
                "Time to the first byte of an answer that one request in twenty exceeds. High with long "
                "queues: too little capacity. High without: row TTFT tells regions apart.",
                Unit.SECONDS,
                metrics.quantile(0.95, "kvcompass_edge_ttft_seconds"),
                steps(watch=signals.TTFT_WATCH_S, act=signals.TTFT_ACT_S),
                nothing=_NO_TRAFFIC,
            ),
            _number(
                5,
                "Reuse share",
                "Prompt tokens that engines took from their caches, of all. A fall without a change of "
                "traffic means that the index or the engines' events are behind: rows Reuse and Views.",
                Unit.SHARE,
                signals.reuse_share(metrics),
                nothing=_NO_TRAFFIC,
            ),
            _number(
                6,
                "Cross-region share",
                "Decisions for a worker of another region, of all. High is well while TTFT is; with errors "
                "at home it means that this region's workers are lost.",
                Unit.SHARE,
                signals.crossing_share(metrics),
                nothing=_NO_TRAFFIC,
            ),
            _number(
                7,
                "Workers not healthy",
                "Workers that some edge cannot use as it should: load unknown, suspected, or out. Row "
                "Workers names them.",
                Unit.COUNT,
                f"sum({metrics.max('kvcompass_edge_worker_standing', 'worker')} > bool 0)",
                steps(act=1),
            ),
            _number(
                8,
                "Shards not exact",
                "Views of a shard, over all edges, that are not known to equal their unit's table: those "
                "edges decide in part blindly. Row Views names them.",
                Unit.COUNT,
                signals.shards_not_exact(metrics),
                steps(watch=1, act=2),
            ),
            _number(
                9,
                "Processes down",
                "Scraped processes that do not answer. Their other panels show nothing: see to these first.",
                Unit.COUNT,
                signals.processes_down(metrics),
                steps(act=1),
            ),
        ),
    )


def _number(
    number: int,
    title: str,
    description: str,
    unit: Unit,
    expression: str,
    limits: tuple[Step, ...] = NO_STEPS,
    *,
    nothing: str = "no data",
) -> Panel:
    return Panel(
        id=number,
        title=title,
        description=description,
        unit=unit,
        queries=(Query(expression),),
        shape=Shape.STAT,
        width=3,
        steps=limits,
        nothing=nothing,
    )
