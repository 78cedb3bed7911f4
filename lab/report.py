"""What a policy achieved: figures from the client's records and from the edges' own counters."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.record import Record


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Median and 95th percentile; 0 when there is nothing to rank."""

    p50: float
    p95: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quantiles":
        """Linear interpolation between ranks."""
        if not values:
            return cls(0.0, 0.0)
        p50, p95 = np.percentile(np.asarray(values, dtype=np.float64), (50.0, 95.0))
        return cls(round(float(p50), 1), round(float(p95), 1))


@dataclass(frozen=True, slots=True)
class PolicyReport:
    """One row of the demo's table. Field names are those of `out/demo.json`."""

    ttft_ms: Quantiles
    e2e_ms: Quantiles
    reused_tokens: int
    recomputed_tokens: int
    cross_region_hits: int
    """Answers whose claim beat every local match and that reused at least the claim, as the edges count."""
    wrong_claims: int
    """Answers that reused less than claimed, as the edges count."""
    peak_load_factor: float
    errors: int


def policy_report(
    records: Iterable[Record], *, cross_region_hits: int, wrong_claims: int, peak_load_factor: float
) -> PolicyReport:
    """TTFT is over all requests that got a first token, end-to-end over those that got their last."""
    records = list(records)
    return PolicyReport(
        ttft_ms=Quantiles.of([record.ttft_ms for record in records if record.ttft_ms is not None]),
        e2e_ms=Quantiles.of([record.e2e_ms for record in records if record.e2e_ms is not None]),
        reused_tokens=sum(record.cached_tokens for record in records),
        recomputed_tokens=sum(record.recomputed_tokens for record in records),
        cross_region_hits=cross_region_hits,
        wrong_claims=wrong_claims,
        peak_load_factor=round(peak_load_factor, 3),
        errors=sum(bool(record.error) for record in records),
    )


def lateness(records: Iterable[Record]) -> Quantiles:
    """How much later than planned requests were sent, model ms: large when this machine is too busy."""
    return Quantiles.of([record.late_ms for record in records])


def error_counts(records: Iterable[Record]) -> Mapping[str, int]:
    """How often each error happened, most frequent first."""
    counts: dict[str, int] = {}
    for record in records:
        if record.error:
            counts[record.error] = counts.get(record.error, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
