"""The simulator's figures once more: one request after the other, in plain Python."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvcompass.engine_model import EngineTiming


@dataclass(frozen=True, slots=True)
class OneRequest:
    """A row of the records."""

    id: int
    region: int
    worker: int
    arrived_us: int
    submitted_us: int
    first_token_us: int
    finished_us: int
    prompt_tokens: int
    cached_tokens: int
    cached_host_tokens: int
    claimed_tokens: int
    answer_tokens: int


def percentile(values: Sequence[float], percent: float) -> float:
    """Linear between the ranks around it."""
    ranked = sorted(values)
    place = percent / 100 * (len(ranked) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ranked) - 1)
    return ranked[below] + (place - below) * (ranked[above] - ranked[below])


def figures(
    requests: Sequence[OneRequest],
    warm_up: int,
    last: int,
    worker_regions: Sequence[int],
    wan_ms: Sequence[Sequence[float]],
    timing: EngineTiming,
) -> dict[str, Any]:
    """What can be read off the requests alone, as `RunFigures` has it; percentiles by (name, percent)."""
    measured = sorted(requests, key=lambda each: (each.arrived_us, each.id))[warm_up:last]
    start_us, end_us = measured[0].arrived_us, measured[-1].arrived_us
    good = [each for each in measured if each.worker >= 0]
    found: dict[str, Any] = {
        "requests": len(measured),
        "failed": len(measured) - len(good),
        "reused_tokens": sum(each.cached_tokens for each in good),
        "recomputed_tokens": sum(each.prompt_tokens - each.cached_tokens for each in good),
        "reused_host_tokens": sum(each.cached_host_tokens for each in good),
    }
    seconds = max(end_us - start_us, 1) / 1e6
    within = [each for each in requests if each.worker >= 0 and start_us < each.finished_us <= end_us]
    found["requests_per_s"] = len(within) / seconds
    found["offered_per_s"] = len(measured) / seconds
    away = [each for each in good if worker_regions[each.worker] != each.region]
    found["cross_region"] = len(away) / len(good) if good else 0.0
    reused_away = sum(each.cached_tokens for each in away)
    found["cross_region_reused"] = reused_away / found["reused_tokens"] if found["reused_tokens"] else 0.0
    wrong = [each for each in good if each.cached_tokens < each.claimed_tokens]
    claims = any(each.claimed_tokens for each in good)
    found["wrong_claims"] = len(wrong) / len(good) if claims else None
    for name, of in (
        ("ttft_ms", lambda each: each.first_token_us - each.arrived_us),
        ("e2e_ms", lambda each: each.finished_us - each.arrived_us),
        ("queue_ms", lambda each: queue_us(each, worker_regions, wan_ms, timing)),
    ):
        for percent in (50, 90, 99):
            values = [of(each) / 1e3 for each in good]
            found[name, percent] = percentile(values, percent) if values else None
    return found


def queue_us(
    request: OneRequest,
    worker_regions: Sequence[int],
    wan_ms: Sequence[Sequence[float]],
    timing: EngineTiming,
) -> int:
    """Time at the engine beyond what the request would take on an engine of its own."""
    back_us = round(1e3 * wan_ms[worker_regions[request.worker]][request.region])
    end, cached = request.prompt_tokens, request.cached_tokens
    alone_ms = (
        timing.prefill_ms_per_token * (end - cached)
        + timing.prefill_ms_per_token_squared * (end**2 - cached**2)
        + timing.reload_ms_per_token * request.cached_host_tokens
    )
    return request.first_token_us - request.submitted_us - back_us - round(1e3 * alone_ms)


def peak_load_factor(at_us: Sequence[int], busy_us: Sequence[Sequence[int]], window_us: int) -> float | None:
    """Every window tried, every worker compared."""
    windows = []
    for start in range(len(at_us)):
        for end in range(start + 1, len(at_us)):
            if at_us[end] - at_us[start] >= window_us:
                windows.append((start, end))
                break
    peak = None
    for start, end in windows:
        done = [busy_us[end][worker] - busy_us[start][worker] for worker in range(len(busy_us[0]))]
        if sum(done) > 0:
            factor = max(done) / (sum(done) / len(done))
            peak = factor if peak is None else max(peak, factor)
    return peak
