"""Queue and decode batch of every worker, for one moment (`kvcompass.fleet.view` says what they mean)."""

import numpy as np

from kvcompass.kernels.arrays import F64, I64, Rows
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


@kernel
def estimate_batches(told_tokens: F64, kept: Rows, now_us: int, lease_us: int, context_tokens: F64) -> None:
    """Set context_tokens[W] to what was told within the lease, and to its mean where that is nothing.

    `kept` is of `kvcompass.fleet.view.KEPT_ROW`.
    """
    told, sum_tokens = 0, 0.0
    for w in range(context_tokens.size):
        context_tokens[w] = -1.0
        if told_tokens[w] >= 0.0 and now_us - kept[w]["learned_us"] <= lease_us:
            context_tokens[w] = told_tokens[w]
            told += 1
            sum_tokens += told_tokens[w]
    mean = sum_tokens / told if told else 0.0
    for w in range(context_tokens.size):
        if context_tokens[w] < 0.0:
            context_tokens[w] = mean
