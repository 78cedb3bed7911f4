"""The joint score: the paper's (3.4) and a term for decoding; one function a term, one pass over all workers.

Milliseconds and tokens. `WAN(o, r)` and `Tq(r)` enter the sum as they are; `kvcompass.fleet` owns both.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import F64, I32, U8, Flags
from kvcompass.kernels.jit import kernel

EFFECTIVE: Final = 0
RECOMPUTE: Final = 1
RELOAD: Final = 2
DECODE: Final = 3
TOTAL: Final = 4
"""Rows of the terms array."""

_DRAM: Final = 2
"""`kvcompass.tier.Tier.DRAM`."""


@kernel
def capacity_price(least_queue_ms: float, queue_scale_ms: float, maximum: float) -> float:
    """`lambda = min(lambda_max, min Tq / tau)`: what recomputing one token costs those who wait behind it."""
    return min(maximum, least_queue_ms / queue_scale_ms)


@kernel
def effective_match(belief: float, match_tokens: int) -> float:
    """`b_r * m_r`: the part of a match that experience says will be reused, tokens."""
    return belief * match_tokens


@kernel
def recompute_ms(price: float, rate: float, prompt_tokens: int, effective: float) -> float:
    """`(1 + lambda) * beta_r * (L - b_r m_r)`: prefill of what is not reused, at the capacity price."""
    return (1.0 + price) * rate * (prompt_tokens - effective)


@kernel
def reload_ms(reload_rate: float, effective: float, in_dram: bool) -> float:
    """`gamma * b_r m_r * 1[t_r = dram]`: copying a match back from host memory."""
    if in_dram:
        return reload_rate * effective
    return 0.0


@kernel
def decode_ms(decode_tokens: float, context_rate: float, context_tokens: float) -> float:
    """`a * rate * u_r`: what a batch's contexts add to so many decode steps (decision 0309)."""
    return decode_tokens * context_rate * context_tokens


@kernel
def least_joint_score(
    wan_ms: F64,
    queue_ms: F64,
    rate: F64,
    reload_rate: F64,
    belief: F64,
    context_rate: F64,
    context_tokens: F64,
    match_tokens: I32,
    expected_tokens: I32,
    tier: U8,
    candidate: Flags,
    other: Flags,
    local: Flags,
    prompt_tokens: int,
    decode_tokens: float,
    queue_scale_ms: float,
    price_max: float,
    tie_ms: float,
    turn: int,
    terms: F64,
) -> tuple[int, int, int, int, int, float]:
    """Weigh every worker; fills terms[5, W] (rows above) for candidates and others alike.

    A worker is credited with the longer of its indexed and its expected match; an expected one will be in
    VRAM. `decode_tokens` are those of the answer that count. The capacity price is that of the shortest queue
    among the candidates (there is at least one).
    Returns (worker, holder, longest, other_best, local_best, price): the candidate of least total, among ties
    (within tie_ms) the first at or after `turn`, wrapping; the least-total candidate of those credited with
    the longest match; that match; the longest indexed match among workers flagged other, and among those
    flagged local, candidates or not.
    """
    workers = wan_ms.size
    least_queue = np.inf
    longest = 0
    other_best = 0
    local_best = 0
    for w in range(workers):
        if candidate[w]:
            least_queue = min(least_queue, queue_ms[w])
            longest = max(longest, max(match_tokens[w], expected_tokens[w]))
        if other[w]:
            other_best = max(other_best, match_tokens[w])
        if local[w]:
            local_best = max(local_best, match_tokens[w])
    price = capacity_price(least_queue, queue_scale_ms, price_max)

    least = np.inf
    holder = -1
    for w in range(workers):
        expected = expected_tokens[w] > match_tokens[w]
        credited = expected_tokens[w] if expected else match_tokens[w]
        effective = effective_match(belief[w], credited)
        recompute = recompute_ms(price, rate[w], prompt_tokens, effective)
        reload = reload_ms(reload_rate[w], effective, tier[w] == _DRAM and not expected)
        decode = decode_ms(decode_tokens, context_rate[w], context_tokens[w])
        total = wan_ms[w] + queue_ms[w] + recompute + reload + decode
        terms[EFFECTIVE, w] = effective
        terms[RECOMPUTE, w] = recompute
        terms[RELOAD, w] = reload
        terms[DECODE, w] = decode
        terms[TOTAL, w] = total
        if candidate[w]:
            least = min(least, total)
            if credited == longest and (holder < 0 or total < terms[TOTAL, holder]):
                holder = w

    worker = -1
    for w in range(workers):
        if candidate[w] and terms[TOTAL, w] <= least + tie_ms and (worker < 0 or worker < turn <= w):
            worker = w
    return worker, holder, longest, other_best, local_best, price
