"""The paper's own rule (`policy = "paper"`): each pair of regions has its own few lengths."""

from kvcompass.levels.first_length import first_length
from kvcompass.plan.model import Plan


def pair_lengths(plan: Plan, origin: int, region: int) -> tuple[int, ...]:
    """Return the lengths an edge of `origin` queries toward `region`, ascending, before any clipping.

    Toward another region: n_1, 1.5 n_1, 2 n_1 and so on; in the own region: the quantum, doubling. Each is
    rounded up to the quantum, so near regions may have fewer than `levels`.
    """
    quantum = plan.lengths.quantum
    levels = range(plan.lengths.levels)
    if origin == region:
        return tuple(quantum << level for level in levels)
    first = first_length(plan, origin, region)
    doubled = [first * (2 + level) for level in levels]
    return tuple(sorted({-(-length // (2 * quantum)) * quantum for length in doubled}))


def union_of_lengths(plan: Plan) -> tuple[int, ...]:
    """Return every length some edge queries, ascending, below the context: where a worker registers."""
    regions = range(len(plan.regions))
    lengths = {length for o in regions for r in regions for length in pair_lengths(plan, o, r)}
    return tuple(sorted(length for length in lengths if length < plan.model.context_length))
