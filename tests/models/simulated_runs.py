"""Figures of runs that nobody simulated."""

from dataclasses import replace

from simulator.results.figures import RunFigures
from simulator.results.parts import Parts
from simulator.results.percentiles import Percentiles
from simulator.results.rows import Run

PLAIN = RunFigures(
    requests=1_000,
    failed=0,
    seconds=10.0,
    offered_per_s=100.0,
    requests_per_s=100.0,
    output_tokens_per_s=20_000.0,
    ttft_ms=Percentiles(120.0, 100.0, 200.0, 400.0),
    e2e_ms=Percentiles(2_000.0, 1_500.0, 3_000.0, 5_000.0),
    queue_ms=Percentiles(20.0, 0.0, 50.0, 200.0),
    ttft_curve_ms=tuple(float(10 + 4 * i) for i in range(101)),
    parts=Parts(40.0, 20.0, 60.0, 1_900.0),
    parts_middle=Parts(40.0, 0.0, 60.0, 1_400.0),
    parts_slowest=Parts(50.0, 200.0, 150.0, 1_400.0),
    parts_longest=Parts(50.0, 50.0, 50.0, 4_900.0),
    reused_tokens=2_000_000,
    recomputed_tokens=1_000_000,
    reused_host_tokens=300_000,
    cross_region=0.2,
    cross_region_reused=0.25,
    only_elsewhere=0.1,
    wrong_claims=0.01,
    peak_load_factor=1.2,
    busy=1.4,
    prefill_busy=0.5,
    wan_bytes=40_000_000,
)


def slower(figures: RunFigures, factor: float) -> RunFigures:
    """All times so many times as long."""

    def times(old: Percentiles) -> Percentiles:
        return Percentiles(
            *(None if each is None else factor * each for each in (old.mean, old.p50, old.p90, old.p99))
        )

    return replace(
        figures,
        ttft_ms=times(figures.ttft_ms),
        e2e_ms=times(figures.e2e_ms),
        queue_ms=times(figures.queue_ms),
        ttft_curve_ms=tuple(factor * each for each in figures.ttft_curve_ms),
    )


def run(
    policy: str, figures: RunFigures = PLAIN, *, load: float = 0.9, seed: int = 1, bound: bool = False
) -> Run:
    """One run of Mixed."""
    return Run("mixed", load, policy, seed, figures, bound)
