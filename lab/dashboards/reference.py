"""`docs/metrics.md`: every metric that the services export, in their own words."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import Metric

from lab.dashboards import specimens
from lab.dashboards.catalogue import PROCESS_METRICS, own_labels, sample_name

_SECTIONS: Final[Mapping[str, str]] = {
    "Every service": "Edges, maintenance units and worker agents alike.",
    "Edge": "Scraped at `ops_address` of its settings.",
    "Maintenance unit": "Scraped at `ops_address` of its settings.",
    "Worker agent": "Scraped at `ops_address` of its settings, once for all its workers.",
    "WAN router": "Of the Compose lab alone.",
}
_OPEN_LABELS: Final = frozenset(
    {"worker", "worker_region", "shard", "unit", "origin", "destination", "source_region", "le"}
    | {"version", "protocol", "python", "profile", "shaper"}
)
"""Their values come from the plan, or from what runs. Those of all others are closed sets."""

_INTRODUCTION: Final = """\
# Every metric

What `/metrics` of each service says. The [dashboard](dashboards.md) shows them, and
`deploy/compose/prometheus/alerts.yml` acts on them. Labels take values of closed sets, or names from the
plan: no client can add a series. To these a scrape adds its own: `instance`, and `region` if you give
it, as [`prometheus.yml`](../deploy/compose/prometheus/prometheus.yml) does. A counter grows from 0 at
the start of its process; of a histogram the name below is that of `_bucket`, `_sum` and `_count`. On
Linux each service exports what the Prometheus client reads of its process, too: {process}.

This page is written by `python -m lab.dashboards`, from the services' own declarations.
"""


def reference() -> str:
    """The page as Markdown."""
    sections = {
        "Edge": tuple(specimens.edge_metrics()),
        "Maintenance unit": tuple(specimens.unit_metrics()),
        "Worker agent": tuple(specimens.agent_metrics()),
    }
    shared = set.intersection(*({metric.name for metric in metrics} for metrics in sections.values()))
    common = [metric for metric in sections["Edge"] if metric.name in shared]
    tables = {"Every service": _table(common)}
    for name, metrics in sections.items():
        tables[name] = _table(metric for metric in metrics if metric.name not in shared)
    tables["WAN router"] = _table(specimens.wan_metrics())
    pages = (f"## {name}\n\n{said}\n\n{tables[name]}" for name, said in _SECTIONS.items())
    process = ", ".join(f"`{name}`" for name in PROCESS_METRICS)
    return "\n".join((_INTRODUCTION.format(process=process), *pages))


def _table(metrics: Iterable[Metric]) -> str:
    rows = ("| metric | kind | labels | what it is |", "|---|---|---|---|", *map(_row, metrics))
    return "\n".join(rows) + "\n"


def _row(metric: Metric) -> str:
    labels = "; ".join(_labels(metric)) or " "
    return f"| `{sample_name(metric)}` | {metric.type} | {labels} | {metric.documentation} |"


def _labels(metric: Metric) -> Iterator[str]:
    for label in own_labels(metric):
        values = sorted({sample.labels[label] for sample in metric.samples if label in sample.labels})
        closed = ", ".join(f"`{value}`" for value in values) if label not in _OPEN_LABELS else ""
        yield f"**{label}**: {closed}" if closed else f"**{label}**"
