"""What an edge reads toward each region, as the arrays the match kernel takes."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kvcompass.levels.first_length import first_lengths
from kvcompass.levels.ladder import ladder
from kvcompass.levels.paper import lengths_of_pairs, union_of_lengths
from kvcompass.plan.model import Plan


@dataclass(frozen=True, slots=True, eq=False)
class QueryPlan:
    """Lengths and who reads them. `n` lengths, `R` regions in the plan's order. Shared: never written to."""

    rungs: npt.NDArray[np.int32]
    """int32[n], ascending: every length an edge computes a key for."""
    queried: npt.NDArray[np.bool_]
    """bool[R, R, n], origin first: rungs that count as claims toward a region."""
    guard: npt.NDArray[np.int32]
    """int32[R, R]: position of the rung that is read as a filter and never credited alone; -1 for none.

    It is never queried, and lies below every queried rung.
    """


def registered_lengths(plan: Plan) -> npt.NDArray[np.int32]:
    """Return the lengths (int32[n], ascending) at which a worker registers a prefix."""
    if plan.lengths.policy == "paper":
        return np.array(union_of_lengths(plan), dtype=np.int32)
    return np.array(ladder(plan.lengths, plan.model.context_length), dtype=np.int32)


def query_plan(plan: Plan) -> QueryPlan:
    """Return the query plan of a fleet; the same for every edge.

    `ladder`: toward a region the rungs at or above its first length, guarded by the rung just below. Where
    there is none below (the own region, near neighbours) the first rung is the guard.
    `paper`: the pair's own lengths, unguarded.
    """
    rungs = registered_lengths(plan)
    regions = len(plan.regions)
    queried = np.zeros((regions, regions, len(rungs)), dtype=np.bool_)
    guard = np.full((regions, regions), -1, dtype=np.int32)
    if plan.lengths.policy == "paper":
        for o, row in enumerate(lengths_of_pairs(plan)):
            for r, lengths in enumerate(row):
                queried[o, r] = np.isin(rungs, lengths)
        return QueryPlan(rungs, queried, guard)
    first = np.maximum(1, np.searchsorted(rungs, first_lengths(plan)))
    queried[:] = np.arange(len(rungs)) >= first[:, :, None]
    guard[:] = np.where(first < len(rungs), first - 1, -1)
    return QueryPlan(rungs, queried, guard)
