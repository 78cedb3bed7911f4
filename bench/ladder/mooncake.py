"""The Mooncake conversation trace: 12,031 requests whose prompts are chains of 512-token blocks."""

import json
from pathlib import Path

import numpy as np

from bench.ladder.workload import Workload, replay

BLOCK = 512


def mooncake(file: Path) -> Workload:
    """Replay the trace as it is: a match ends where the last whole shared block does."""
    with file.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    requests = ((row["input_length"], row["hash_ids"]) for row in rows)
    return replay("mooncake", f"{file.name}, whole 512-token blocks", requests, BLOCK)


def within_blocks(trace: Workload, seed: int = 1) -> Workload:
    """The same trace with every match prolonged by 0 to 511 tokens, as the trace cannot tell.

    Takes away the advantage of lists whose lengths happen to be multiples of 512.
    """
    more = np.random.default_rng(seed).integers(0, BLOCK, trace.matched.size)
    matched = np.minimum(trace.matched + more, trace.prompt - 1)
    return Workload(
        f"{trace.name}, part blocks", f"{trace.source} and 0 to 511 tokens", trace.prompt, matched
    )
