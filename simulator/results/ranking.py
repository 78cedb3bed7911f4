"""Where a policy is not first, and why: read off the parts of its time beside the winner's."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from simulator.results.figures import RunFigures
from simulator.results.metrics import METRICS, Better, Metric
from simulator.results.parts import Parts
from simulator.results.rows import Load, Row
from simulator.results.spread import Spread

RANKED: Final = ("ttft_p50_ms", "ttft_p99_ms", "e2e_p99_ms", "output_tokens_per_s")
"""The figures by which a policy is called first."""
_LEAST_SHARE: Final = 0.1
"""Parts of a difference that are smaller than this share of its largest part are not told."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A figure in which another policy is ahead. Bounds are no policies and rank nowhere."""

    workload: str
    load: Load
    metric: Metric
    ours: float
    """Over the seeds."""
    best: float
    winner: str
    clear: bool
    """Student's interval of the differences, seed by seed, leaves out 0. Never with one seed."""
    reason: str


def losses(rows: Sequence[Row], policy: str) -> list[Loss]:
    """List every figure of RANKED, workload and load in which `policy` is not first. A tie is first too."""
    found: list[Loss] = []
    places = dict.fromkeys((row.workload, row.load) for row in rows)
    for place in places:
        there = [row for row in rows if (row.workload, row.load) == place and not row.is_bound]
        ours = next((row for row in there if row.policy == policy), None)
        if ours is None:
            continue
        lost = (_loss(metric, ours, there) for metric in METRICS if metric.name in RANKED)
        found += [loss for loss in lost if loss is not None]
    return found


def _loss(metric: Metric, ours: Row, there: Sequence[Row]) -> Loss | None:
    ranked = {row.policy: spread.value for row in there if (spread := row.figures[metric.name]) is not None}
    if not ranked:
        return None
    best = max(ranked.values(), key=lambda value: metric.better * value)
    own = ranked.get(ours.policy)
    if own is None or own == best:
        return None
    winner = next(row for row in there if ranked.get(row.policy) == best)
    return Loss(
        workload=ours.workload,
        load=ours.load,
        metric=metric,
        ours=own,
        best=best,
        winner=winner.policy,
        clear=_clear(metric, ours, winner),
        reason=reason(metric, ours, winner),
    )


def _clear(metric: Metric, ours: Row, winner: Row) -> bool:
    """Whether the winner is ahead beyond what seeds do: they ran the same requests, so pairs are compared."""
    theirs = dict(zip(winner.seeds, winner.runs, strict=True))
    pairs = [
        (metric.of(run), metric.of(theirs[seed]))
        for seed, run in zip(ours.seeds, ours.runs, strict=True)
        if seed in theirs
    ]
    behind = Spread.of(metric.better * (b - a) for a, b in pairs if a is not None and b is not None)
    return behind is not None and behind.low is not None and behind.low > 0.0


def reason(metric: Metric, ours: Row, winner: Row) -> str:
    """Say what sets two rows apart in a figure, in words and numbers.

    For a time: which part of it is longer, in the tenth of requests around the median for a P50 and in the
    slowest hundredth for a P99. For all: what the engines reused, sent away and how even they were.
    """
    said = []
    if metric.better is Better.LESS:
        where = _middle if metric.name == "ttft_p50_ms" else _slowest
        said += _parts(_mean_parts(ours, where), _mean_parts(winner, where))
    said += [
        text
        for name, text_of in _SIDES
        if (text := _side(ours.figures[name], winner.figures[name], text_of)) is not None
    ]
    return "; ".join(said) or "no part differs"


def _middle(run: RunFigures) -> Parts | None:
    return run.parts_middle


def _slowest(run: RunFigures) -> Parts | None:
    return run.parts_slowest


def _mean_parts(row: Row, where: Callable[[RunFigures], Parts | None]) -> Parts | None:
    known = [parts for run in row.runs if (parts := where(run)) is not None]
    if not known:
        return None
    return Parts(
        fmean(parts.way_ms for parts in known),
        fmean(parts.queue_ms for parts in known),
        fmean(parts.prefill_ms for parts in known),
    )


def _parts(ours: Parts | None, theirs: Parts | None) -> list[str]:
    if ours is None or theirs is None:
        return []
    differences = {
        "on the way": ours.way_ms - theirs.way_ms,
        "waiting at engines": ours.queue_ms - theirs.queue_ms,
        "prefilling": ours.prefill_ms - theirs.prefill_ms,
    }
    largest = max(abs(value) for value in differences.values())
    told = {what: value for what, value in differences.items() if abs(value) >= _LEAST_SHARE * largest > 0.0}
    ordered = sorted(told.items(), key=lambda item: -item[1])
    return [f"{value:+,.0f} ms {what}" for what, value in ordered if round(value)]


_SIDES: Final[tuple[tuple[str, str], ...]] = (
    ("reused_mtokens", "{:+.0%} reused tokens"),
    ("wan_mbytes", "{:+.0%} bytes over the WAN"),
    ("peak_load_factor", "{:+.0%} peak load factor"),
)


def _side(ours: Spread | None, theirs: Spread | None, text: str) -> str | None:
    if ours is None or theirs is None or not theirs.value:
        return None
    change = ours.value / theirs.value - 1.0
    return text.format(change) if abs(change) >= 0.01 else None
