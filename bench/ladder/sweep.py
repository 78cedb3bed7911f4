"""Which rules are weighed, and the weighing of all of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bench.ladder.capture import Captured, exact_saved_ms, measure
from bench.ladder.network import Network
from bench.ladder.optimum import best_list
from bench.ladder.rules import Rule, geometric, grid, ladder_rule, paper_rule, plan_of
from bench.ladder.workload import Workload
from kvcompass.levels import first_length
from kvcompass.plan.model import LengthRule, Plan

DEFAULT = LengthRule()
PAPER_LEVELS = 6
STRETCHES = (1.4, 1.25, 1.0, 0.9, 0.8, 0.75, 0.7, 0.65, 0.6, 0.5, 0.4)
RATIOS = (2.0, 1.5, 1.35, 1.25, 1.2, 1.175, 1.15, 1.125, 1.1)
LEVELS = (1, 2, 3, 4, 5, 6, 8, 10, 12)
CHUNKS = (256, 512, 1_024, 2_048)
PRICES = (0.02, 0.015, 0.01, 0.0075, 0.005, 0.004, 0.003, 0.002, 0.001, 0.0005)
BEST = "best for this workload"


@dataclass(frozen=True, slots=True)
class Setting:
    """What the weighing depends on beside workload and rule."""

    network: Network
    prefill_ms: float
    context: int

    def plan(self, rule: LengthRule = DEFAULT) -> Plan:
        """A plan of this network under a rule."""
        return plan_of(self.network, rule, self.context, self.prefill_ms)

    def first_lengths(self) -> list[int]:
        """n1 of every ordered pair of different regions, ascending."""
        plan = self.plan()
        return sorted(first_length(plan, o, r) for o, r in self.network.pairs())


@dataclass(frozen=True, slots=True)
class Point:
    """One rule, weighed."""

    rule: Rule
    captured: Captured


def chosen(setting: Setting) -> tuple[Rule, Rule]:
    """The product's default and the paper's rule."""
    plan = setting.plan()
    return ladder_rule(plan, DEFAULT.stretch, DEFAULT.quantum), paper_rule(plan, PAPER_LEVELS)


def rules(setting: Setting) -> Iterator[Rule]:
    """Every rule of the sweep that does not depend on the workload."""
    plan, context = setting.plan(), setting.context
    for levels in LEVELS:
        yield paper_rule(plan, levels)
    for chunk in CHUNKS:
        for levels in LEVELS:
            yield grid(chunk, context, levels)
    for chunk in CHUNKS:
        yield grid(chunk, context)
    for ratio in RATIOS:
        yield geometric(DEFAULT.quantum, ratio, context)
    for quantum in (64, 128, 256):
        for stretch in STRETCHES:
            yield ladder_rule(plan, stretch, quantum)


def weigh(setting: Setting, workload: Workload) -> list[Point]:
    """Weigh every rule of the sweep, and the best lists of this workload."""
    best = (
        best_list(workload, setting.network, setting.prefill_ms, setting.context, DEFAULT.quantum, price)
        for price in PRICES
    )
    return [
        Point(rule, measure(rule, workload, setting.network, setting.prefill_ms))
        for rule in (*rules(setting), *best)
    ]


@dataclass(frozen=True, slots=True)
class Budget:
    """Fig. 5(b): milliseconds saved a request with the first k lengths toward every region."""

    name: str
    saved_ms: tuple[float, ...]
    """By k - 1."""


Way = Callable[[int, int], list[int]]
"""(n1, k) to the first k lengths toward a region."""
WAYS: dict[str, Way] = {
    "n1, 1.5 n1, 2 n1, ...": lambda n1, k: [round(n1 * (1 + i / 2)) for i in range(k)],
    "n1, times 1.5 each": lambda n1, k: [round(n1 * 1.5**i) for i in range(k)],
    "grid of 512": lambda n1, k: [512 * (i + 1) for i in range(k)],
    "grid of 1,024": lambda n1, k: [1_024 * (i + 1) for i in range(k)],
}


def per_pair(setting: Setting, workload: Workload, most: int = 12) -> tuple[float, list[Budget]]:
    """Exact savings in ms a request, and what the paper's Figure 5(b) compares by levels per pair.

    The lengths of a pair are counted, as there, and not the keys of a worker, which registers them all.
    """
    plan = setting.plan()
    firsts = {pair: first_length(plan, *pair) for pair in setting.network.pairs()}

    def saved_ms(rule: Rule) -> float:
        return measure(rule, workload, setting.network, setting.prefill_ms).saved_ms

    def toward(way: Way, levels: int) -> Rule:
        own = np.array(way(DEFAULT.quantum, levels))
        lists = {pair: np.array(way(n1, levels)) for pair, n1 in firsts.items()}
        return Rule("", "", own, lambda o, r: lists.get((o, r), own))

    budgets = [
        Budget(name, tuple(saved_ms(toward(way, levels)) for levels in range(1, most + 1)))
        for name, way in WAYS.items()
    ]
    budgets.append(Budget("our ladder", (saved_ms(chosen(setting)[0]),) * most))
    return exact_saved_ms(workload, setting.network, setting.prefill_ms), budgets
