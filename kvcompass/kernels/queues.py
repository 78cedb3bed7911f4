"""The queue estimate of every worker, for one moment (`kvcompass.fleet.view` says what it means)."""

import numpy as np

from kvcompass.kernels.arrays import F64, I64
from kvcompass.kernels.jit import kernel


@kernel
def estimate_queues(
    reported_ms: F64, unreported_us: I64, whole_us: I64, began_us: I64, now_us: int, queue_ms: F64
) -> None:
    """Set queue_ms[W] to `max(reported + unreported, backlog)`.

    The backlog is `whole_us` less the time since `began_us`, of own prefills that are not over at `now_us`.
    """
    for w in range(queue_ms.size):
        told_ms = reported_ms[w] + unreported_us[w] / 1000.0
        backlog_us = whole_us[w] - max(np.int64(now_us) - began_us[w], 0)
        queue_ms[w] = max(told_ms, backlog_us / 1000.0)
