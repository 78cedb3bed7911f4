"""The paper's own rule (`policy = "paper"`): each pair of regions has its own few lengths."""

from kvcompass.levels.first_length import first_lengths
from kvcompass.plan.model import Plan

Lengths = tuple[int, ...]
"""Tokens, ascending."""


def lengths_of_pairs(plan: Plan) -> tuple[tuple[Lengths, ...], ...]:
    """Return the lengths an edge queries toward a region, by origin and region, before any clipping.

    Toward another region: n_1, 1.5 n_1, 2 n_1 and so on; in the own region: the quantum, doubling. Each is
    rounded up to the quantum, so near regions may have fewer than `levels`.
    """
    quantum, levels = plan.lengths.quantum, range(plan.lengths.levels)
    own = tuple(quantum << level for level in levels)

    def toward(first: int) -> Lengths:
        doubled = [first * (2 + level) for level in levels]
        return tuple(sorted({-(-length // (2 * quantum)) * quantum for length in doubled}))

    return tuple(
        tuple(own if o == r else toward(first) for r, first in enumerate(row))
        for o, row in enumerate(first_lengths(plan))
    )


def union_of_lengths(plan: Plan) -> Lengths:
    """Return every length some edge queries, below the context: where a worker registers."""
    lengths = {length for row in lengths_of_pairs(plan) for pair in row for length in pair}
    return tuple(sorted(length for length in lengths if length < plan.model.context_length))
