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
    if origin == region:
        return plan.lengths.quantum
    pair = (plan.regions[origin], plan.regions[region])
    rates = [worker.prefill_ms_per_token for worker in plan.workers if worker.region in pair]
    slowest = max(rates or [worker.prefill_ms_per_token for worker in plan.workers])
    round_trip_ms = plan.wan_ms[origin][region] + plan.wan_ms[region][origin]
    return math.ceil(round_trip_ms / slowest)
