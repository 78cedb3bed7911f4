"""The ladder: one list of lengths shared by every worker and every edge.

A match between two rungs loses what lies above the lower one, and every rung is a key of every longer prompt.
With rungs s(c) apart at length c, p(c) matches that end there and P(c) prompts that reach it, the sum of both
is least where s(c) grows like the square root of P(c) / p(c). Long prompts are a heavy tail, P(c) / p(c) is
about c, and so rungs part with the square root of their length: closer than by a constant ratio where matches
are longest and worth most, without the paper's equal steps that never get there.
"""

import math
from collections.abc import Iterator

from kvcompass.plan.model import LengthRule


def ladder(rule: LengthRule, context_length: int) -> tuple[int, ...]:
    """Return the rungs in tokens, ascending, all multiples of the quantum, the first of them the quantum.

    Rungs end below the context: a prompt of `context_length` tokens can reuse at most one token less.
    """
    rungs = []
    for rung in _endless(rule):
        if rung >= context_length:
            break
        rungs.append(rung)
    return tuple(rungs)


def next_rung(rule: LengthRule, context_length: int) -> int:
    """Return the first rung that the context clips."""
    return next(rung for rung in _endless(rule) if rung >= context_length)


def _endless(rule: LengthRule) -> Iterator[int]:
    quanta = 1
    while True:
        yield quanta * rule.quantum
        quanta += max(1, int(rule.stretch * math.sqrt(quanta) + 0.5))
