"""The joint score over arrays of workers: one kernel call, no allocation."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvcompass.kernels.score import EFFECTIVE, RECOMPUTE, RELOAD, TOTAL, least_joint_score
from kvcompass.plan.model import RoutingRule

TIE_MS = 1e-6
"""Scores closer than this are equal: far above rounding, far below anything that matters."""


@dataclass(frozen=True, slots=True)
class ScoreInputs:
    """What the score reads of the workers: float64[W] each, owned by the fleet view, read in place."""

    wan_charge_ms: NDArray[np.float64]
    queue_ms: NDArray[np.float64]
    prefill_ms_per_token: NDArray[np.float64]
    reload_ms_per_token: NDArray[np.float64]
    belief: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Weighed:
    """One request against every worker. The arrays (float64[W]) are valid until the next `weigh`."""

    worker: int
    """The candidate of least score; among equals the first at or after `turn`, wrapping."""
    holder: int
    """The candidate of least score among those credited with the longest match."""
    longest: int
    """The longest match a candidate is credited with, tokens."""
    local_best: int
    """The longest indexed match among the workers flagged local, tokens."""
    capacity_price: float
    """lambda."""
    effective_match: NDArray[np.float64]
    recompute_ms: NDArray[np.float64]
    reload_ms: NDArray[np.float64]
    total_ms: NDArray[np.float64]
    """The score; of candidates and others alike."""


class JointScore:
    """Weighs requests against one fleet's workers with the constants of its plan.

    Made ready at construction: the kernel is compiled or loaded there, so that no request waits for it.
    """

    def __init__(self, inputs: ScoreInputs, rule: RoutingRule) -> None:
        workers = len(inputs.wan_charge_ms)
        self._inputs = inputs
        self._rule = rule
        self._terms = np.zeros((4, workers))
        self._nothing_expected = np.zeros(workers, np.int32)
        everyone = np.ones(workers, np.bool_)
        no_tier = np.zeros(workers, np.uint8)
        self.weigh(self._nothing_expected, None, no_tier, everyone, everyone, prompt_tokens=1, turn=0)

    def weigh(
        self,
        match_tokens: NDArray[np.int32],
        expected_tokens: NDArray[np.int32] | None,
        tier: NDArray[np.uint8],
        candidate: NDArray[np.bool_],
        local: NDArray[np.bool_],
        prompt_tokens: int,
        turn: int,
    ) -> Weighed:
        """Score a request at all W workers. O(W), some microseconds.

        Args:
            match_tokens: int32[W], indexed matches, none longer than the prompt.
            expected_tokens: int32[W], expected matches; a worker is credited with the longer of the two.
            tier: uint8[W], of the indexed matches.
            candidate: bool[W], at least one set.
            local: bool[W], workers of the origin region that serve the request's group, candidates or not.
            prompt_tokens: L.
            turn: a worker's index; decides among equals.
        """
        inputs = self._inputs
        worker, holder, longest, local_best, price = least_joint_score(
            inputs.wan_charge_ms,
            inputs.queue_ms,
            inputs.prefill_ms_per_token,
            inputs.reload_ms_per_token,
            inputs.belief,
            match_tokens,
            self._nothing_expected if expected_tokens is None else expected_tokens,
            tier,
            candidate,
            local,
            prompt_tokens,
            self._rule.queue_scale_ms,
            self._rule.capacity_price_max,
            TIE_MS,
            turn,
            self._terms,
        )
        terms = self._terms
        return Weighed(
            int(worker),
            int(holder),
            int(longest),
            int(local_best),
            float(price),
            terms[EFFECTIVE],
            terms[RECOMPUTE],
            terms[RELOAD],
            terms[TOTAL],
        )
