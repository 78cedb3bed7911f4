"""What is said of a policy: one line a figure, for tables, plots and rankings alike."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from simulator.results.figures import RunFigures


class Better(IntEnum):
    """Which way a figure is better."""

    LESS = -1
    NEITHER = 0
    MORE = 1


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of a run, by name."""

    name: str
    """In JSON."""
    title: str
    """With its unit, for people."""
    form: str
    better: Better
    of: Callable[[RunFigures], float | None]


@dataclass(frozen=True, slots=True)
class BoundMetric:
    """A figure of a run beside that of the clairvoyant bound under the same requests."""

    name: str
    title: str
    form: str
    better: Better
    of: Callable[[RunFigures, RunFigures], float | None]
    """Of the run, then of the bound."""


METRICS: Final[tuple[Metric, ...]] = (
    Metric("ttft_p50_ms", "TTFT P50, ms", "{:,.0f}", Better.LESS, lambda run: run.ttft_ms.p50),
    Metric("ttft_p90_ms", "TTFT P90, ms", "{:,.0f}", Better.LESS, lambda run: run.ttft_ms.p90),
    Metric("ttft_p99_ms", "TTFT P99, ms", "{:,.0f}", Better.LESS, lambda run: run.ttft_ms.p99),
    Metric("e2e_p99_ms", "end to end P99, ms", "{:,.0f}", Better.LESS, lambda run: run.e2e_ms.p99),
    Metric(
        "queue_p99_ms", "wait at the engine P99, ms", "{:,.0f}", Better.LESS, lambda run: run.queue_ms.p99
    ),
    Metric("requests_per_s", "requests/s", "{:,.1f}", Better.MORE, lambda run: run.requests_per_s),
    Metric(
        "output_tokens_per_s", "output tokens/s", "{:,.0f}", Better.MORE, lambda run: run.output_tokens_per_s
    ),
    Metric("reused_mtokens", "reused, M tokens", "{:,.2f}", Better.MORE, lambda run: run.reused_tokens / 1e6),
    Metric(
        "recomputed_mtokens",
        "recomputed, M tokens",
        "{:,.2f}",
        Better.LESS,
        lambda run: run.recomputed_tokens / 1e6,
    ),
    Metric(
        "cross_region_pct",
        "answered across regions, %",
        "{:.1f}",
        Better.NEITHER,
        lambda run: 100 * run.cross_region,
    ),
    Metric(
        "cross_region_reused_pct",
        "of the reused, across regions, %",
        "{:.1f}",
        Better.NEITHER,
        lambda run: 100 * run.cross_region_reused,
    ),
    Metric(
        "only_elsewhere_pct",
        "hits only in other regions, %",
        "{:.1f}",
        Better.NEITHER,
        lambda run: None if run.only_elsewhere is None else 100 * run.only_elsewhere,
    ),
    Metric(
        "wrong_claims_pct",
        "wrong claims, %",
        "{:.1f}",
        Better.NEITHER,
        lambda run: None if run.wrong_claims is None else 100 * run.wrong_claims,
    ),
    Metric(
        "peak_load_factor", "peak load factor, 30 s", "{:.2f}", Better.LESS, lambda run: run.peak_load_factor
    ),
    Metric(
        "prefill_busy_pct",
        "prefilling, % of time",
        "{:.0f}",
        Better.NEITHER,
        lambda run: 100 * run.prefill_busy,
    ),
    Metric("wan_mbytes", "sent over the WAN, MB", "{:,.0f}", Better.LESS, lambda run: run.wan_bytes / 1e6),
    Metric("failed", "failed", "{:,.0f}", Better.LESS, lambda run: run.failed),
)

BOUND_METRICS: Final[tuple[BoundMetric, ...]] = (
    BoundMetric(
        "bound_ttft_pct",
        "bound's TTFT P99 / own, %",
        "{:.0f}",
        Better.MORE,
        lambda run, bound: _percent(bound.ttft_ms.p99, run.ttft_ms.p99),
    ),
    BoundMetric(
        "bound_reused_pct",
        "own reuse / the bound's, %",
        "{:.0f}",
        Better.MORE,
        lambda run, bound: _percent(run.reused_tokens, bound.reused_tokens),
    ),
)

ALL_METRICS: Final[tuple[Metric | BoundMetric, ...]] = (*METRICS, *BOUND_METRICS)


def _percent(part: float | None, whole: float | None) -> float | None:
    return 100 * part / whole if part is not None and whole else None
