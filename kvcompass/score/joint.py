"""The sum of the terms over every worker of every region."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcompass.score import terms
from kvcompass.tier import Tier


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """What the score reads. Arrays float64[W] unless said; none is changed."""

    wan_ms: NDArray[np.float64]
    queue_ms: NDArray[np.float64]
    prefill_ms_per_token: NDArray[np.float64]
    reload_ms_per_token: NDArray[np.float64]
    belief: NDArray[np.float64]
    match_tokens: NDArray[np.int32]
    tier: NDArray[np.uint8]
    bar_ms: NDArray[np.float64]
    """0 for candidates, inf for the others."""
    prompt_tokens: int
    """L; no match is longer."""


@dataclass(frozen=True, slots=True)
class JointScore:
    """Scores of all workers (inf: not a candidate) and the terms they are made of; arrays float64[W]."""

    capacity_price: float
    """lambda, from the shortest queue among the candidates."""
    effective_match: NDArray[np.float64]
    recompute_ms: NDArray[np.float64]
    reload_ms: NDArray[np.float64]
    total_ms: NDArray[np.float64]

    @classmethod
    def of(cls, inputs: ScoreInputs, queue_scale_ms: float, capacity_price_max: float) -> "JointScore":
        """Score at least one candidate. Cost: about 15 numpy calls, whatever W is up to a few hundred."""
        barred_queue = inputs.queue_ms + inputs.bar_ms
        price = terms.capacity_price(float(barred_queue.min()), queue_scale_ms, capacity_price_max)
        effective = terms.effective_match(inputs.belief, inputs.match_tokens)
        recompute = terms.recompute_ms(price, inputs.prefill_ms_per_token, inputs.prompt_tokens, effective)
        reload = terms.reload_ms(inputs.reload_ms_per_token, effective, inputs.tier == Tier.DRAM)
        total = barred_queue + inputs.wan_ms
        total += recompute
        total += reload
        return cls(price, effective, recompute, reload, total)
