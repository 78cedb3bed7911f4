"""What a plan may say and rarely means: no fault, and worth a look before the fleet starts."""

from collections.abc import Iterator
from typing import Final

from kvcompass.plan.model import Plan

_SLOW_MS_PER_TOKEN: Final = 10.0
"""Twenty times what the slowest GPU of the calibration takes for an 8B model."""
_PROMPT: Final = 8_000


def plan_notes(plan: Plan) -> Iterator[str]:
    """Each begins with the field."""
    for i, worker in enumerate(plan.workers):
        if worker.prefill_ms_per_token > _SLOW_MS_PER_TOKEN:
            minutes = worker.prefill_ms_per_token * _PROMPT / 60_000
            yield (
                f"worker[{i}].prefill_ms_per_token: {_PROMPT:,} tokens would take {minutes:,.1f} minutes; "
                "is it in milliseconds?"
            )
        if worker.reload_ms_per_token >= worker.prefill_ms_per_token:
            yield (
                f"worker[{i}].reload_ms_per_token: what is in DRAM is never worth reloading: computing it "
                "is as fast"
            )
    vacant = sorted(set(range(plan.tables)) - {worker.table for worker in plan.workers})
    if vacant:
        yield (
            f"worker.table: no worker has table {', '.join(map(str, vacant))}; each costs every shard and "
            "lookup a table (`kvcompass plan assign --reuse` fills the places of workers that have left)"
        )
