"""Which lengths are read and which count, from the words of the rule, without arrays."""

from collections.abc import Sequence
from fractions import Fraction

from kvcompass.plan.model import Plan


def naive_claims_and_guard(rungs: Sequence[int], first_length: int) -> tuple[list[int], int | None]:
    """Rungs that count toward a region, and the one below that is only read (None when nothing counts)."""
    claims = [rung for rung in rungs if rung >= first_length and rung != rungs[0]]
    if not claims:
        return [], None
    return claims, max(rung for rung in rungs if rung < claims[0])


def naive_first_length(plan: Plan, origin: str, region: str) -> int:
    """Smallest number of tokens whose prefill takes at least the round trip at the slowest worker."""
    o, r = plan.regions.index(origin), plan.regions.index(region)
    if o == r:
        return plan.lengths.quantum
    rates = [w.prefill_ms_per_token for w in plan.workers if w.region in (origin, region)]
    rate = max(rates or [w.prefill_ms_per_token for w in plan.workers])
    quotient = (plan.wan_ms[o][r] + plan.wan_ms[r][o]) / rate
    return -int(-Fraction(quotient) // 1)
