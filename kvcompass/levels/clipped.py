"""What the model's context cuts off, so that a plan's owner can see it."""

from dataclasses import dataclass

from kvcompass.levels.first_length import first_lengths
from kvcompass.levels.ladder import ladder, next_rung
from kvcompass.levels.paper import lengths_of_pairs
from kvcompass.plan.model import Plan


@dataclass(frozen=True, slots=True)
class Clipped:
    """Lengths toward a region that no prompt can reach."""

    origin: str
    region: str
    lengths: tuple[int, ...]
    """Tokens. Under `ladder` the one rung that would come next."""
    unreachable: bool
    """Nothing is left to query: no prompt is long enough to be worth sending from `origin` to `region`."""


def clipped_lengths(plan: Plan) -> tuple[Clipped, ...]:
    """Return one entry per ordered pair of regions that loses lengths to the context, in the plan's order.

    Under `ladder` all pairs share the ladder, so only pairs left with nothing are listed.
    """
    context = plan.model.context_length
    paper, firsts = lengths_of_pairs(plan), first_lengths(plan)
    found = []
    for o, origin in enumerate(plan.regions):
        for r, region in enumerate(plan.regions):
            if plan.lengths.policy == "paper":
                lengths = paper[o][r]
                lost = tuple(length for length in lengths if length >= context)
                unreachable = len(lost) == len(lengths)
            else:
                unreachable = firsts[o][r] > ladder(plan.lengths, context)[-1]
                lost = (next_rung(plan.lengths, context),) if unreachable else ()
            if lost:
                found.append(Clipped(origin, region, lost, unreachable))
    return tuple(found)
