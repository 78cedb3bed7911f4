"""Where a policy is not first, and why: read off the parts of its time beside the winner's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from simulator.results.figures import RunFigures
from simulator.results.metrics import METRICS, Metric
from simulator.results.parts import Parts
from simulator.results.rows import Load, Row
from simulator.results.spread import Spread

_THROUGHPUT: Final = "output_tokens_per_s"
RANKED: Final = ("ttft_p50_ms", "ttft_p99_ms", "e2e_p99_ms", _THROUGHPUT)
"""The figures by which a policy is called first."""
_KEEPS_UP: Final = 0.99
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
    clear: bool | None
    """Student's interval of the differences, seed by seed, leaves out 0. None with one seed."""
    reason: str


def losses(rows: Sequence[Row], policy: str) -> list[Loss]:
    """List every figure of RANKED, workload and load in which `policy` is not first. A tie is first too.

    A policy that answers as much as is asked is first in throughput: whoever answers more makes up for what
    it left waiting while the run warmed up.
    """
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
    if own is None or own == best or (metric.name == _THROUGHPUT and _keeps_up(ours)):
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


def _keeps_up(row: Row) -> bool:
    """Whether as much was answered as asked, or a hundredth less, over all runs."""
    asked = sum(run.offered_per_s for run in row.runs)
    return sum(run.requests_per_s for run in row.runs) >= _KEEPS_UP * asked


def _clear(metric: Metric, ours: Row, winner: Row) -> bool | None:
    """Whether the winner is ahead beyond what seeds do: they ran the same requests, so pairs are compared."""
    theirs = dict(zip(winner.seeds, winner.runs, strict=True))
    pairs = [
        (metric.of(run), metric.of(theirs[seed]))
        for seed, run in zip(ours.seeds, ours.runs, strict=True)
        if seed in theirs
    ]
    behind = Spread.of(metric.better * (b - a) for a, b in pairs if a is not None and b is not None)
    return None if behind is None or behind.low is None else behind.low > 0.0


def reason(metric: Metric, ours: Row, winner: Row) -> str:
    """Say what sets two rows apart in a figure, in words and numbers.

    First which part of a request's time is longer or shorter: in the tenth of requests around the median for
    a P50, in the slowest hundredth for a P99, in all for a throughput, whose answers are complete the later.
    Then what the engines reused, what was sent away and how even they were.
    """
    where = _WHERE.get(metric.name, _all)
    said = _parts(_mean_parts(ours, where), _mean_parts(winner, where), answers=metric.name not in _TTFT)
    said += [
        text
        for name, what in _SIDES
        if (text := _side(ours.figures[name], winner.figures[name], what)) is not None
    ]
    return "; ".join(said) or "no part differs"


def _all(run: RunFigures) -> Parts | None:
    return run.parts


_TTFT: Final = ("ttft_p50_ms", "ttft_p99_ms")
_WHERE: Final[Mapping[str, Callable[[RunFigures], Parts | None]]] = {
    "ttft_p50_ms": lambda run: run.parts_middle,
    "ttft_p99_ms": lambda run: run.parts_slowest,
    "e2e_p99_ms": lambda run: run.parts_longest,
}


def _mean_parts(row: Row, where: Callable[[RunFigures], Parts | None]) -> Parts | None:
    known = [parts for run in row.runs if (parts := where(run)) is not None]
    if not known:
        return None
    return Parts(
        fmean(parts.way_ms for parts in known),
        fmean(parts.queue_ms for parts in known),
        fmean(parts.prefill_ms for parts in known),
        fmean(parts.answer_ms for parts in known),
    )


def _parts(ours: Parts | None, theirs: Parts | None, *, answers: bool) -> list[str]:
    if ours is None or theirs is None:
        return []
    differences = {
        "on the way": ours.way_ms - theirs.way_ms,
        "waiting at engines": ours.queue_ms - theirs.queue_ms,
        "prefilling": ours.prefill_ms - theirs.prefill_ms,
    }
    if answers:
        differences["decoding"] = ours.answer_ms - theirs.answer_ms
    largest = max(abs(value) for value in differences.values())
    told = {what: value for what, value in differences.items() if abs(value) >= _LEAST_SHARE * largest > 0.0}
    ordered = sorted(told.items(), key=lambda item: -item[1])
    return [f"{value:+,.0f} ms {what}" for what, value in ordered if round(value)]


_SIDES: Final[tuple[tuple[str, str], ...]] = (
    ("reused_mtokens", "reused tokens"),
    ("wan_mbytes", "bytes over the WAN"),
    ("peak_load_factor", "peak load factor"),
)
_TIMES: Final = 2.0
"""From so many times as much on it is told as that, not in per cent."""


def _side(ours: Spread | None, theirs: Spread | None, what: str) -> str | None:
    if ours is None or theirs is None or not theirs.value:
        return None
    ratio = ours.value / theirs.value
    if ratio >= _TIMES:
        return f"{ratio:,.1f} times the {what}"
    return f"{ratio - 1.0:+.0%} {what}" if abs(ratio - 1.0) >= 0.01 else None
