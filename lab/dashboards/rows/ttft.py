"""How long a client waits for the first byte, and what of that is the edge's own."""

from lab.dashboards import signals
from lab.dashboards.panels import Panel, Query, Row, Unit, steps
from lab.dashboards.promql import Expressions


def ttft(metrics: Expressions) -> Row:
    """First bytes, decisions, tokenization."""
    seconds = "kvcompass_edge_ttft_seconds"
    return Row(
        200,
        "TTFT",
        (
            Panel(
                id=201,
                title="TTFT P50 by region",
                description="Half of the requests that a region's clients sent got their first byte sooner. "
                "Compare regions: one that is slower than the others has long queues or much WAN.",
                unit=Unit.SECONDS,
                queries=(Query(metrics.quantile(0.5, seconds, "region"), "{{region}}"),),
            ),
            Panel(
                id=202,
                title="TTFT P95 by region",
                description="One request in twenty waited longer. Rising with the queues of row Workers: "
                "too little capacity; rising alone: prompts grew, or reuse fell.",
                unit=Unit.SECONDS,
                queries=(Query(metrics.quantile(0.95, seconds, "region"), "{{region}}"),),
                steps=steps(watch=signals.TTFT_WATCH_S, act=signals.TTFT_ACT_S),
            ),
            Panel(
                id=203,
                title="TTFT P95 by where the worker stands",
                description="From the client's region to the worker's. A way that is much slower than "
                "staying at home should not be taken often: check wan_ms of the plan against row WAN.",
                unit=Unit.SECONDS,
                queries=(
                    Query(
                        metrics.quantile(0.95, seconds, "region", "worker_region"),
                        "{{region}} to {{worker_region}}",
                    ),
                ),
            ),
            Panel(
                id=204,
                title="Decision time",
                description="Match, score and choice of a worker, without tokenization. Above a "
                "millisecond: the edge's CPU is shared or throttled.",
                unit=Unit.MICROSECONDS,
                queries=(
                    Query(metrics.quantile(0.5, "kvcompass_edge_decision_us"), "P50"),
                    Query(metrics.quantile(0.99, "kvcompass_edge_decision_us"), "P99"),
                ),
                width=12,
                steps=steps(watch=1_000, act=10_000),
            ),
            Panel(
                id=205,
                title="Tokenization and keys",
                description="Template, tokenizer and prefix keys of a prompt. It grows with prompts; high "
                "for short ones: the edge needs more CPU.",
                unit=Unit.SECONDS,
                queries=(
                    Query(metrics.quantile(0.5, "kvcompass_edge_encode_seconds"), "P50"),
                    Query(metrics.quantile(0.95, "kvcompass_edge_encode_seconds"), "P95"),
                ),
                width=12,
            ),
        ),
    )
