"""Load reports into an edge's view and out of it (`kvcompass.fleet.view` says what they mean).

Rows are of `kvcompass.fleet.load.LOAD_ROW`; all else is by worker of the plan.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import F64, I64, U8, Rows
from kvcompass.kernels.jit import kernel

_READY: Final = 1
"""`kvcompass.fleet.load.WorkerState.READY`."""
_KNOWN: Final = 0
_OUT: Final = 3
"""`kvcompass.fleet.view.Standing`."""


@kernel
def fold_loads(
    rows: Rows,
    workers: I64,
    begin: int,
    received_us: int,
    live: bool,
    told: Rows,
    learned_us: I64,
    reported_ms: F64,
    unshown_since_us: I64,
    round_trip_us: I64,
    lease_us: int,
    weight: F64,
    rate: F64,
    planned_rate: F64,
    rate_band: float,
    standing: U8,
) -> tuple[int, int, bool]:
    """Fold in rows[begin:], each of the worker at its place; a negative worker is passed over.

    Stops before a row that is the first to show own work, sent at `unshown_since_us[w]`, and says until when:
    the caller takes that work over and goes on from there.

    Returns:
        The row it stopped before, else their number; until when that row shows work, microseconds; whether
        the standing of a worker is to be judged anew.
    """
    moved = False
    for i in range(begin, rows.size):
        w = workers[i]
        if w < 0:
            continue
        heard_us = received_us - np.int64(rows[i]["age_ms"]) * 1000
        shown_until_us = (received_us if live else heard_us) - round_trip_us[w]
        if unshown_since_us[w] <= shown_until_us:
            return i, shown_until_us, moved
        kept = weight[w]
        if heard_us - learned_us[w] > lease_us or told[w]["state"] != _READY:
            kept = 1.0
        reported_ms[w] += kept * (rows[i]["queue_ms"] - reported_ms[w])
        measured = rows[i]["prefill_ms_per_token"]
        if measured > 0.0:
            rate[w] = min(max(measured, planned_rate[w] / rate_band), planned_rate[w] * rate_band)
        told[w] = rows[i]
        learned_us[w] = max(learned_us[w], heard_us)
        if standing[w] != (_KNOWN if rows[i]["state"] == _READY else _OUT):
            moved = True
    return rows.size, 0, moved


@kernel
def tell_loads(
    rows: Rows,
    known: I64,
    workers: I64,
    now_us: int,
    told: Rows,
    learned_us: I64,
    queue_ms: F64,
    lease_us: int,
) -> int:
    """Find the workers whose load is younger than the lease; returns how many.

    Sets the first of `known` to them, and the first rows to their loads with the present queue and age.
    """
    count = 0
    for w in workers:
        age_us = now_us - learned_us[w]
        if age_us <= lease_us:
            known[count] = w
            rows[count] = told[w]
            rows[count]["queue_ms"] = queue_ms[w]
            rows[count]["age_ms"] = np.rint(age_us / 1000.0)
            count += 1
    return count
