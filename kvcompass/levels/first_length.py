"""The shortest prefix worth crossing the WAN for (n_1, paper 3.2)."""

import math

from kvcompass.plan.model import Plan


def first_length(plan: Plan, origin: int, region: int) -> int:
    """Return n_1 in tokens toward `region` from `origin` (positions in `plan.regions`).

    It is the round trip over the prefill rate. The rate is the largest `prefill_ms_per_token` among the
    workers of the two regions, so that no worker's profitable length is left out; a pair without workers
    takes the fleet's largest. In its own region an edge starts at the quantum: the round trip there is too
    short to matter.
    """
    return _first_length(plan, origin, region, _slowest_rates(plan))


def first_lengths(plan: Plan) -> tuple[tuple[int, ...], ...]:
    """Return `first_length` of every ordered pair, origin first, in one pass over the workers."""
    slowest = _slowest_rates(plan)
    regions = range(len(plan.regions))
    return tuple(tuple(_first_length(plan, o, r, slowest) for r in regions) for o in regions)


def _first_length(plan: Plan, origin: int, region: int, slowest: list[float]) -> int:
    if origin == region:
        return plan.lengths.quantum
    rate = max(slowest[origin], slowest[region]) or max(slowest)
    round_trip_ms = plan.wan_ms[origin][region] + plan.wan_ms[region][origin]
    return math.ceil(round_trip_ms / rate)


def _slowest_rates(plan: Plan) -> list[float]:
    """The largest `prefill_ms_per_token` of each region; 0 where there is no worker."""
    slowest = dict.fromkeys(plan.regions, 0.0)
    for worker in plan.workers:
        slowest[worker.region] = max(slowest[worker.region], worker.prefill_ms_per_token)
    return list(slowest.values())
