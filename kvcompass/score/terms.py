"""The terms of the joint score (paper 3.4) over arrays of workers; ms and tokens.

`WAN(o, r)` and `Tq(r)` enter the sum as they are; `kvcompass.fleet` owns both.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]


def capacity_price(least_queue_ms: float, queue_scale_ms: float, maximum: float) -> float:
    """`lambda = min(lambda_max, min Tq / tau)`: what recomputing one token costs those who wait behind it."""
    return min(maximum, least_queue_ms / queue_scale_ms)


def effective_match(belief: Floats, match_tokens: NDArray[np.int32]) -> Floats:
    """`b_r * m_r`: the part of a match that experience says will be reused, tokens."""
    return belief * match_tokens


def recompute_ms(price: float, rate: Floats, prompt_tokens: int, effective: Floats) -> Floats:
    """`(1 + lambda) * beta_r * (L - b_r m_r)`: prefill of what is not reused, at the capacity price."""
    residual = prompt_tokens - effective
    residual *= rate
    residual *= 1.0 + price
    return residual


def reload_ms(reload_rate: Floats, effective: Floats, in_dram: NDArray[np.bool_]) -> Floats:
    """`gamma * b_r m_r * 1[t_r = dram]`: copying a match back from host memory."""
    return reload_rate * effective * in_dram
