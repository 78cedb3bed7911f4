"""Load concentration: a worker's compute time over the mean of all workers, in a sliding window."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WINDOW_MS = 30_000.0


@dataclass(frozen=True, slots=True)
class BusySample:
    """Compute time of every worker since its start, at one moment."""

    at_ms: float
    busy_ms: Mapping[str, float]


def peak_load_factor(samples: Sequence[BusySample], window_ms: float = WINDOW_MS) -> float:
    """The largest load factor of any worker in any window; 0 without two samples or without work.

    `samples` are in order of time. A run shorter than the window counts as one window.
    """
    if len(samples) < 2:
        return 0.0
    peak = 0.0
    whole = samples[-1].at_ms - samples[0].at_ms
    start = 0
    for end in range(1, len(samples)):
        while samples[end].at_ms - samples[start + 1].at_ms >= window_ms:
            start += 1
        if samples[end].at_ms - samples[start].at_ms < min(window_ms, whole):
            continue
        done = [
            samples[end].busy_ms[worker] - samples[start].busy_ms[worker] for worker in samples[0].busy_ms
        ]
        mean = sum(done) / len(done)
        if mean > 0.0:
            peak = max(peak, max(done) / mean)
    return peak
