"""The lists of lengths to compare: what a worker registers and what an edge queries toward a region."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from bench.ladder.network import Network
from kvcompass.levels import query_plan
from kvcompass.plan.model import IndexRule, LengthRule, ModelIdentity, Plan, RoutingRule, Worker

Lengths = NDArray[np.int64]
"""Tokens, ascending."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One list under one network."""

    family: str
    """The line it is a point of."""
    label: str
    registered: Lengths
    queried: Callable[[int, int], Lengths]
    """Lengths credited, by positions of origin and region."""

    def keys_of(self, tokens: int) -> int:
        """Keys that a prompt of so many tokens is registered under."""
        return int(np.searchsorted(self.registered, tokens, side="right"))


def plan_of(network: Network, lengths: LengthRule, context: int, prefill_ms: float) -> Plan:
    """The plan of a fleet with one worker a region, as far as lengths depend on it."""
    return Plan(
        fleet="ladder",
        plan_version=1,
        model=ModelIdentity("model", "builtin:kvcompass-bpe", "builtin:kvcompass-chat", 16, context),
        lengths=lengths,
        index=IndexRule(),
        routing=RoutingRule(),
        regions=network.regions,
        wan_ms=tuple(tuple(float(ms) for ms in row) for row in network.round_trip_ms / 2),
        edges=(),
        units=(),
        workers=tuple(
            Worker(region, region, "http://127.0.0.1", "tcp://127.0.0.1", i, 0, prefill_ms, 0.005)
            for i, region in enumerate(network.regions)
        ),
        sharing_groups=(),
    )


def planned(family: str, label: str, plan: Plan) -> Rule:
    """What the product does under a plan: its ladder, or the paper's rule."""
    queries = query_plan(plan)
    rungs = queries.rungs.astype(np.int64)
    return Rule(family, label, rungs, lambda o, r: rungs[queries.queried[o, r]])


def ladder_rule(plan: Plan, stretch: float, quantum: int) -> Rule:
    """Our ladder with another spacing."""
    lengths = LengthRule(quantum=quantum, stretch=stretch)
    return planned(
        f"ladder, quantum {quantum}", f"{quantum}, stretch {stretch:g}", replace(plan, lengths=lengths)
    )


def paper_rule(plan: Plan, levels: int) -> Rule:
    """The paper's: n1, 1.5 n1, ... toward each region, doublings at home, registered at the union."""
    lengths = LengthRule(policy="paper", levels=levels)
    return planned("paper's rule", count_of_levels(levels), replace(plan, lengths=lengths))


def geometric(quantum: int, growth: float, context: int) -> Rule:
    """Multiples of the quantum, each about `growth` times the one before; the first is the guard."""
    rungs, rung = [], quantum
    while rung < context:
        rungs.append(rung)
        rung += quantum * max(1, int(rung * (growth - 1.0) / quantum + 0.5))
    return shared(f"geometric, quantum {quantum}", f"x{growth:g}", rungs, guarded=True)


def grid(chunk: int, context: int, levels: int | None = None) -> Rule:
    """Multiples of a chunk size: the first few, as in the paper, or all below the context, with a guard."""
    lengths = np.arange(chunk, context, chunk)[:levels]
    if levels is None:
        return shared("whole grid", f"every {chunk:,}", lengths, guarded=True)
    return shared(f"fixed grid of {chunk:,}", count_of_levels(levels), lengths)


def count_of_levels(levels: int) -> str:
    """In words."""
    return f"{levels} level{'s' * (levels != 1)}"


def shared(family: str, label: str, lengths: list[int] | Lengths, *, guarded: bool = False) -> Rule:
    """One list for all pairs; `guarded` if its first length is read and never credited."""
    registered = np.array(lengths, np.int64)
    queried = registered[1:] if guarded else registered
    return Rule(family, label, registered, lambda o, r: queried)
