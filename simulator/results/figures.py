"""The figures of one run."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.fleet import Fleet
from simulator.results.load_factor import peak_load_factor
from simulator.results.outcome import Columns, Watched
from simulator.results.parts import Parts, part_times
from simulator.results.percentiles import Percentiles, curve_ms

REUSABLE_TOKENS: Final = 512
"""Least prefix whose place is asked for in `only_elsewhere` (paper, Fig. 2)."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """Over the requests that count, and over the time in which they arrived: after the warm-up, before the
    cool-down.

    Requests that failed are counted and in no other figure. Every one that counts is waited for, while others
    go on arriving, so that no slow answer is left out.
    """

    requests: int
    failed: int
    seconds: float
    """From the first of these arrivals to the last, on the virtual clock."""
    offered_per_s: float
    """Arrivals a second of it."""
    requests_per_s: float
    """Answers that were complete within it, whenever asked for."""
    output_tokens_per_s: float | None
    """Tokens that engines generated within it, of answers complete or not; None where it was too short to be
    looked at twice."""
    ttft_ms: Percentiles
    e2e_ms: Percentiles
    queue_ms: Percentiles
    """See `Parts.queue_ms`."""
    ttft_curve_ms: tuple[float, ...]
    """Percentiles 0 to 100."""
    parts: Parts | None
    """Of all these requests; None where every one failed."""
    parts_middle: Parts | None
    """Of the tenth in the middle by TTFT."""
    parts_slowest: Parts | None
    """Of the slowest hundredth by TTFT."""
    parts_longest: Parts | None
    """Of the slowest hundredth from end to end."""
    reused_tokens: int
    recomputed_tokens: int
    reused_host_tokens: int
    """Of the reused, loaded back from DRAM."""
    cross_region: float
    """Share of requests that another region's worker answered."""
    cross_region_reused: float
    """Share of reused tokens that were reused there."""
    only_elsewhere: float | None
    """Of sampled requests that could reuse `REUSABLE_TOKENS` anywhere: share that could not in their own
    region. What a policy leaves on the table, or picks up across regions."""
    wrong_claims: float | None
    """Share of requests whose engine reused less than the router thought; None where it never said what it
    thought (`Site.dispatch`)."""
    peak_load_factor: float | None
    """None in less time than its window."""
    busy: float
    """Share of its time that a worker computed, prefill or decode or both at once (then twice); mean."""
    prefill_busy: float
    """Share of its time that it prefilled."""
    wan_bytes: int
    """Between regions: prompts, answers' events and a policy's own messages, as far as their senders say."""


def run_figures(fleet: Fleet, columns: Columns, watched: Watched, counts: NDArray[np.bool_]) -> RunFigures:
    """Return the figures of a run that has ended.

    Args:
        fleet: What it ran on.
        columns: What became of its requests.
        watched: What was sampled.
        counts: bool[requests], which of them count; some do.
    """
    failed = columns["worker"] < 0
    arrived = columns["arrived_us"][counts]
    start_us, end_us = int(arrived.min()), int(arrived.max())
    seconds = max(end_us - start_us, 1) / 1e6
    finished = columns["finished_us"]
    within = (finished > start_us) & (finished <= end_us) & ~failed
    good = counts & ~failed
    times = part_times(fleet, columns)
    ttft_us = columns["first_token_us"] - columns["arrived_us"]
    region_of = np.array([fleet.region_of(worker) for worker in range(fleet.workers)])
    away = good & (region_of[columns["worker"]] != columns["region"])
    cached, claimed = columns["cached_tokens"], columns["claimed_tokens"]
    reused = int(cached[good].sum())
    sampled = (watched.at_us >= start_us) & (watched.at_us <= end_us)
    worked = _grown(watched.busy_us[sampled].sum(axis=1))
    sampled_us = _grown(watched.at_us[sampled])
    watched_us = fleet.workers * max(sampled_us, 1)
    by_ttft = np.flatnonzero(good)[np.argsort(ttft_us[good], kind="stable")]
    answered = len(by_ttft)
    middle = by_ttft[answered * 45 // 100 : answered * 55 // 100 + 1]
    by_e2e = np.flatnonzero(good)[np.argsort((finished - columns["arrived_us"])[good], kind="stable")]
    hundredth = max(answered // 100, 1)
    return RunFigures(
        requests=int(counts.sum()),
        failed=int((counts & failed).sum()),
        seconds=seconds,
        offered_per_s=int(counts.sum()) / seconds,
        requests_per_s=int(within.sum()) / seconds,
        output_tokens_per_s=1e6 * _grown(watched.generated[sampled]) / sampled_us if sampled_us else None,
        ttft_ms=Percentiles.of_us(ttft_us[good]),
        e2e_ms=Percentiles.of_us((finished - columns["arrived_us"])[good]),
        queue_ms=Percentiles.of_us(times.queue_us[good]),
        ttft_curve_ms=curve_ms(ttft_us[good]),
        parts=times.mean(by_ttft),
        parts_middle=times.mean(middle),
        parts_slowest=times.mean(by_ttft[-hundredth:]),
        parts_longest=times.mean(by_e2e[-hundredth:]),
        reused_tokens=reused,
        recomputed_tokens=int(columns["prompt_tokens"][good].sum()) - reused,
        reused_host_tokens=int(columns["cached_host_tokens"][good].sum()),
        cross_region=_share(away.sum(), answered),
        cross_region_reused=_share(cached[away].sum(), reused),
        only_elsewhere=_only_elsewhere(watched.reusable, counts),
        wrong_claims=_share((cached < claimed)[good].sum(), answered) if claimed[good].any() else None,
        peak_load_factor=peak_load_factor(watched.at_us[sampled], watched.busy_us[sampled]),
        busy=worked / watched_us,
        prefill_busy=_grown(watched.prefill_busy_us[sampled]) / watched_us,
        wan_bytes=_grown(watched.wan_bytes[sampled]),
    )


def _grown(samples: NDArray[np.int64]) -> int:
    return int(samples[-1] - samples[0]) if len(samples) else 0


def _share(part: int, whole: int) -> float:
    return float(part) / float(whole) if whole else 0.0


def _only_elsewhere(reusable: NDArray[np.int64], counts: NDArray[np.bool_]) -> float | None:
    reusable = reusable[counts[reusable[:, 0]]]
    here, elsewhere = reusable[:, 1] >= REUSABLE_TOKENS, reusable[:, 2] >= REUSABLE_TOKENS
    somewhere = int((here | elsewhere).sum())
    return _share(int((elsewhere & ~here).sum()), somewhere) if somewhere else None
