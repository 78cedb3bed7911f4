"""The ladder: one list of lengths shared by every worker and every edge."""

from collections.abc import Iterator

from kvcompass.plan.model import LengthRule


def ladder(rule: LengthRule, context_length: int) -> tuple[int, ...]:
    """Return the rungs in tokens, ascending: the quantum, then about `growth` times the one before.

    Each is a multiple of the quantum, and at least one quantum above the one before.

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
    rung = rule.quantum
    while True:
        yield rung
        steps = int(rung * (rule.growth - 1.0) / rule.quantum + 0.5)
        rung += rule.quantum * max(1, steps)
