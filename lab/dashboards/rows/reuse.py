"""What caches are worth, at home and across regions, and how far claims can be trusted."""

from lab.dashboards import signals
from lab.dashboards.panels import Colour, Panel, Query, Row, Unit, steps
from lab.dashboards.promql import Expressions, share


def reuse(metrics: Expressions) -> Row:
    """Tokens, crossings, claims."""
    prompt, reused = "kvcompass_edge_prompt_tokens_total", "kvcompass_edge_reused_tokens_total"
    claimed, decisions = "kvcompass_edge_claimed_tokens_total", "kvcompass_edge_decisions_total"
    return Row(
        300,
        "Reuse and cross-region share",
        (
            Panel(
                id=301,
                title="Prompt tokens",
                description="Prompt tokens of answered requests, a second: taken from caches, or "
                "prefilled. What is prefilled is what costs GPU time.",
                unit=Unit.TOKENS_A_SECOND,
                queries=(
                    Query(metrics.rate(reused), "reused"),
                    Query(f"{metrics.rate(prompt)} - {metrics.rate(reused)}", "recomputed"),
                ),
                stacked=True,
                colours={"reused": Colour.GOOD, "recomputed": Colour.NEUTRAL},
            ),
            Panel(
                id=302,
                title="Reuse share by region",
                description="Reused of all prompt tokens of a region's clients, and what decisions had "
                "claimed. Reuse below the claim: engines evict sooner than the index learns of it.",
                unit=Unit.SHARE,
                queries=(
                    Query(signals.reuse_share(metrics, "region"), "{{region}} reused"),
                    Query(
                        share(metrics.rate(claimed, "region"), metrics.rate(prompt, "region")),
                        "{{region}} claimed",
                    ),
                ),
                largest=1,
            ),
            Panel(
                id=303,
                title="Cross-region share by region",
                description="Decisions of a region's edges for a worker elsewhere, of all. Near one with "
                "errors at home: the region has lost its workers. Nothing at all: the others cannot be "
                "reached, or nothing is shared.",
                unit=Unit.SHARE,
                queries=(Query(signals.crossing_share(metrics, "region"), "{{region}}"),),
                largest=1,
            ),
            Panel(
                id=304,
                title="Cross-region hits",
                description="Answers, a minute, that reused another region's cache where no worker at home "
                "could match the claim: what crossing earns.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(
                        metrics.a_minute("kvcompass_edge_cross_region_hits_total", "region", "worker_region"),
                        "{{region}} from {{worker_region}}",
                    ),
                ),
            ),
            Panel(
                id=305,
                title="Decisions by reason",
                description="Why workers win, a second. only_suspected, only_unknown_load and "
                "holder_unavailable mean that a better worker could not be used: see row Workers.",
                unit=Unit.EVENTS_A_SECOND,
                queries=(Query(metrics.rate(decisions, "reason"), "{{reason}}"),),
                stacked=True,
            ),
            Panel(
                id=306,
                title="Blind decisions",
                description="Decisions taken while some shard was STALE or ABSENT, of all. Any: row Views "
                "names the shard; its unit or the way to it is the matter.",
                unit=Unit.SHARE,
                queries=(
                    Query(
                        share(
                            metrics.rate("kvcompass_edge_blind_decisions_total", "region"),
                            metrics.rate(decisions, "region"),
                        ),
                        "{{region}}",
                    ),
                ),
                largest=1,
                steps=steps(watch=0.01, act=0.1),
            ),
            Panel(
                id=307,
                title="Wrong claims",
                description="Answers, a minute, for which a worker reused less than was claimed. One worker "
                "only: its events are lost or late (event gaps in row Views); all: caches are too small.",
                unit=Unit.EVENTS_A_MINUTE,
                queries=(
                    Query(metrics.a_minute("kvcompass_edge_wrong_claims_total", "worker"), "{{worker}}"),
                ),
                width=12,
                stacked=True,
            ),
            Panel(
                id=308,
                title="Belief",
                description="How much of a claim each worker is believed to reuse, the lowest over all "
                "edges. Below one half for long: it is routed to as if it held half of what it says.",
                unit=Unit.SHARE,
                queries=(Query(metrics.min("kvcompass_edge_worker_belief", "worker"), "{{worker}}"),),
                width=12,
                largest=1,
            ),
        ),
    )
