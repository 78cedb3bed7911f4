"""The joint score over arrays of workers: one kernel call."""

from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvcompass.index.lookup_unit import Lookup, LookupUnit, Matches
from kvcompass.kernels.decide import match_and_weigh
from kvcompass.kernels.score import DECODE, EFFECTIVE, RECOMPUTE, RELOAD, TOTAL, least_joint_score
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
    context_ms_per_token: NDArray[np.float64]
    context_tokens: NDArray[np.float64]
    """What each step of a worker's decode batch reads."""


class Weighed(NamedTuple):
    """One request against every worker. The arrays (one value a worker) are valid until the next weighing."""

    worker: int
    """The candidate of least score; among equals the first at or after `turn`, wrapping."""
    holder: int
    """The candidate of least score among those credited with the longest match."""
    longest: int
    """The longest match a candidate is credited with, tokens."""
    other_best: int
    """The longest indexed match among the workers flagged other, tokens."""
    local_best: int
    """The longest indexed match among the workers flagged local, tokens."""
    capacity_price: float
    """lambda."""
    match_tokens: NDArray[np.int32]
    """Indexed matches."""
    tier: NDArray[np.uint8]
    """Of the indexed matches."""
    effective_match: NDArray[np.float64]
    recompute_ms: NDArray[np.float64]
    reload_ms: NDArray[np.float64]
    decode_ms: NDArray[np.float64]
    total_ms: NDArray[np.float64]
    """The score; of candidates and others alike."""


class Standings(NamedTuple):
    """Who a request may go to, and among whom its matches are compared: bool[W] each."""

    candidate: NDArray[np.bool_]
    """At least one is set."""
    other: NDArray[np.bool_]
    """Workers within reach that serve the request's group and are no candidates."""
    local: NDArray[np.bool_]
    """Workers of the origin region that serve the request's group, candidates or not."""


class JointScore:
    """Weighs requests against one fleet's workers with the constants of its plan.

    The score's own kernel is made ready at construction, so that no request waits for it. The one that looks
    up as well takes the compiler longer: `kvcompass.warm` makes it ready.
    """

    def __init__(self, inputs: ScoreInputs, rule: RoutingRule, lookup: Lookup | None = None) -> None:
        workers = len(inputs.wan_charge_ms)
        self._inputs = (
            inputs.wan_charge_ms,
            inputs.queue_ms,
            inputs.prefill_ms_per_token,
            inputs.reload_ms_per_token,
            inputs.belief,
            inputs.context_ms_per_token,
            inputs.context_tokens,
        )
        self._rule = (rule.queue_scale_ms, rule.capacity_price_max, TIE_MS)
        self._decode_tokens = rule.decode_tokens
        self._lookup = lookup
        self._unit = lookup if isinstance(lookup, LookupUnit) else None
        self._terms = np.zeros((5, workers))
        self._rows = tuple(self._terms[row] for row in (EFFECTIVE, RECOMPUTE, RELOAD, DECODE, TOTAL))
        self._found = Matches.none(workers)
        self._nothing_expected = np.zeros(workers, np.int32)
        everyone = np.ones(workers, np.bool_)
        standings = Standings(everyone, everyone, everyone)
        self.weigh(self._found, None, standings, prompt_tokens=1, turn=0)

    def weigh(
        self,
        matches: Matches,
        expected_tokens: NDArray[np.int32] | None,
        standings: Standings,
        prompt_tokens: int,
        turn: int,
        answer_tokens: float = inf,
    ) -> Weighed:
        """Score a request at all W workers. O(W), some microseconds.

        Args:
            matches: Indexed matches, none longer than the prompt.
            expected_tokens: int32[W], expected matches; a worker is credited with the longer of the two.
            standings: Whose score counts.
            prompt_tokens: L.
            turn: a worker's index; decides among equals.
            answer_tokens: The longest answer that is asked for.
        """
        best = least_joint_score(
            *self._inputs,
            matches.match_tokens,
            self._nothing_expected if expected_tokens is None else expected_tokens,
            matches.tier,
            *standings,
            prompt_tokens,
            float(min(self._decode_tokens, answer_tokens)),
            *self._rule,
            turn,
            self._terms,
        )
        return Weighed(*best, matches.match_tokens, matches.tier, *self._rows)

    def match_and_weigh(
        self,
        keys: NDArray[np.uint64],
        expected_tokens: NDArray[np.int32] | None,
        standings: Standings,
        prompt_tokens: int,
        turn: int,
        answer_tokens: float = inf,
    ) -> Weighed:
        """Look a prompt up and score it; `kvcompass.index.LookupUnit` and score are then one kernel call.

        Args:
            keys: uint64[n], those of the query plan's first n rungs.
            expected_tokens: As of `weigh`, and so are the others.
        """
        if self._unit is None:
            assert self._lookup is not None, "made without a lookup"
            return self.weigh(
                self._lookup.match(keys), expected_tokens, standings, prompt_tokens, turn, answer_tokens
            )
        found = self._found
        arguments: tuple[Any, ...] = (
            *self._unit.arguments(keys, found),
            *self._inputs,
            self._nothing_expected if expected_tokens is None else expected_tokens,
            *standings,
            prompt_tokens,
            float(min(self._decode_tokens, answer_tokens)),
            *self._rule,
            turn,
            self._terms,
        )
        best = match_and_weigh(*arguments)
        return Weighed(*best, found.match_tokens, found.tier, *self._rows)
