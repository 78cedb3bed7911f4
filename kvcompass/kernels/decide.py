"""A routing decision in one call: read the index for every worker, then weigh every worker.

It adds nothing to what it is made of: `match.match_keys` says who holds what, `score.least_joint_score` says
who is best.
"""

from kvcompass.kernels.arrays import F64, I32, I64, U8, U64, Flags, Words
from kvcompass.kernels.jit import kernel
from kvcompass.kernels.match import match_keys
from kvcompass.kernels.score import least_joint_score


@kernel
def match_and_weigh(
    words: Words,
    directory: U64,
    present: Flags,
    keys: U64,
    rungs: I32,
    reads: I32,
    guard: I32,
    table_region: I32,
    table_fields: U64,
    field_worker: I32,
    probes: U64,
    mixes: U64,
    probe_level: I32,
    runs: I64,
    run_fields: U64,
    match_tokens: I32,
    tier: U8,
    wan_ms: F64,
    queue_ms: F64,
    rate: F64,
    reload_rate: F64,
    belief: F64,
    context_rate: F64,
    context_tokens: F64,
    expected_tokens: I32,
    candidate: Flags,
    other: Flags,
    local: Flags,
    prompt_tokens: int,
    decode_tokens: float,
    queue_scale_ms: float,
    price_max: float,
    tie_ms: float,
    turn: int,
    terms: F64,
) -> tuple[int, int, int, int, int, float]:
    """Arguments and effects are those of the two kernels; returns what `least_joint_score` does."""
    match_keys(
        words, directory, present, keys, rungs, reads, guard, table_region, table_fields, field_worker,
        probes, mixes, probe_level, runs, run_fields, match_tokens, tier,
    )  # fmt: skip
    return least_joint_score(
        wan_ms, queue_ms, rate, reload_rate, belief, context_rate, context_tokens, match_tokens,
        expected_tokens, tier, candidate, other, local, prompt_tokens, decode_tokens, queue_scale_ms,
        price_max, tie_ms, turn, terms,
    )  # fmt: skip
