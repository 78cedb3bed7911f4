"""Load reports into an edge's view and out of it (`kvcompass.fleet.view` says what they mean).

Rows of reports are of `kvcompass.fleet.load.LOAD_ROW`, what is kept of each worker is of
`kvcompass.fleet.view.KEPT_ROW`. All but the rows is by worker of the plan.
"""

from typing import Final

import numpy as np

from kvcompass.kernels.arrays import F64, I64, U8, Rows
from kvcompass.kernels.jit import kernel

RATE_BAND: Final = 4.0
"""A measured prefill rate is believed within this factor of the plan's; beyond it the bound is used."""

UNTOLD: Final = -1.0
"""In the place of tokens in use."""

_READY: Final = 1
"""`kvcompass.fleet.load.WorkerState.READY`."""
_KNOWN: Final = 0
_OUT: Final = 3
"""`kvcompass.fleet.view.Standing`."""


@kernel
def tokens_told(row: np.void) -> float:
    """Tokens in use, no more than there is room for; UNTOLD where nothing is said of requests that run."""
    used, room = np.float64(row["used_tokens"]), np.float64(row["max_tokens"])
    if used == 0.0 and row["running"] > 0:
        return UNTOLD
    return min(used, room) if room > 0.0 else used


@kernel
def fold_loads(
    rows: Rows,
    workers: I64,
    begin: int,
    received_us: int,
    live: bool,
    kept: Rows,
    lease_us: int,
    unshown_since_us: I64,
    reported_ms: F64,
    rate: F64,
    told_tokens: F64,
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
        row, before = rows[i], kept[w]
        heard_us = received_us - np.int64(row["age_ms"]) * 1000
        shown_until_us = (received_us if live else heard_us) - before["round_trip_us"]
        if unshown_since_us[w] <= shown_until_us:
            return i, shown_until_us, moved
        weight = before["weight"]
        if heard_us - before["learned_us"] > lease_us or before["load"]["state"] != _READY:
            weight = 1.0
        reported_ms[w] += weight * (row["queue_ms"] - reported_ms[w])
        measured, planned = row["prefill_ms_per_token"], before["planned_rate"]
        if measured > 0.0:
            rate[w] = min(max(measured, planned / RATE_BAND), planned * RATE_BAND)
        if heard_us >= before["learned_us"]:
            told_tokens[w] = tokens_told(row)
            before["learned_us"] = heard_us
        before["load"] = row
        if standing[w] != (_KNOWN if row["state"] == _READY and not before["drain"] else _OUT):
            moved = True
    return rows.size, 0, moved


@kernel
def tell_loads(
    rows: Rows, known: I64, workers: I64, now_us: int, kept: Rows, lease_us: int, queue_ms: F64
) -> int:
    """Find the workers whose load is younger than the lease; returns how many.

    Sets the first of `known` to them, and the first rows to their loads with the present queue and age.
    """
    count = 0
    for w in workers:
        age_us = now_us - kept[w]["learned_us"]
        if age_us <= lease_us:
            known[count] = w
            row = rows[count]
            rows[count] = kept[w]["load"]
            row["queue_ms"] = queue_ms[w]
            row["age_ms"] = np.rint(age_us / 1000.0)
            count += 1
    return count
