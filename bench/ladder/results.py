"""Everything one run finds, and its JSON."""

from dataclasses import asdict, dataclass
from typing import Any

from bench.ladder.capture import Captured, measure
from bench.ladder.network import Network
from bench.ladder.rules import Rule
from bench.ladder.sweep import DEFAULT, Budget, Point, Setting, chosen, per_pair, weigh
from bench.ladder.workload import Workload

PROMPT = 4_096


@dataclass(frozen=True, slots=True)
class Weighed:
    """One workload under the main network."""

    workload: Workload
    ladder: Captured
    paper: Captured
    points: list[Point]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Default and paper under another network, for the first workload."""

    network: Network
    first_lengths: tuple[int, int]
    """Shortest and longest n1 of a pair, tokens."""
    keys: tuple[int, int]
    """Of a prompt of 4,096 tokens: default, paper."""
    shares: tuple[float, float]
    """Of the first workload's exact-match savings: default, paper."""


@dataclass(frozen=True, slots=True)
class Results:
    """A run."""

    setting: Setting
    ladder: Rule
    paper: Rule
    weighed: list[Weighed]
    elsewhere: list[Elsewhere]
    exact_ms: float
    """Of the last workload: milliseconds a request that exact matches save, as in Figure 5(b)."""
    budgets: list[Budget]


def run(setting: Setting, workloads: list[Workload], others: list[Network]) -> Results:
    """Weigh everything. Takes seconds a workload."""
    ladder, paper = chosen(setting)
    weighed = [
        Weighed(
            workload,
            measure(ladder, workload, setting.network, setting.prefill_ms),
            measure(paper, workload, setting.network, setting.prefill_ms),
            weigh(setting, workload),
        )
        for workload in workloads
    ]
    networks = [setting.network, *others]
    elsewhere = [_elsewhere(setting, network, workloads[0]) for network in networks]
    exact_ms, budgets = per_pair(setting, workloads[-1])
    return Results(setting, ladder, paper, weighed, elsewhere, exact_ms, budgets)


def _elsewhere(setting: Setting, network: Network, workload: Workload) -> Elsewhere:
    there = Setting(network, setting.prefill_ms, setting.context)
    rules = chosen(there)
    firsts = there.first_lengths()
    shares = [measure(rule, workload, network, setting.prefill_ms).share for rule in rules]
    return Elsewhere(
        network,
        (firsts[0], firsts[-1]),
        (rules[0].keys_of(PROMPT), rules[1].keys_of(PROMPT)),
        (shares[0], shares[1]),
    )


def as_json(results: Results) -> dict[str, Any]:
    """Plain values. `capture` and `own` are shares of exact-match savings; keys are counts a prompt."""
    setting = results.setting
    return {
        "prefill_ms_per_token": setting.prefill_ms,
        "context_length": setting.context,
        "network": {"name": setting.network.name, "source": setting.network.source},
        "ladder": {"quantum": DEFAULT.quantum, "stretch": DEFAULT.stretch},
        "keys_4096": results.ladder.keys_of(PROMPT),
        "keys_4096_paper": results.paper.keys_of(PROMPT),
        "capture": {
            one.workload.name: {"ladder": one.ladder.share, "paper": one.paper.share}
            for one in results.weighed
        },
        "own_region": {
            one.workload.name: {"ladder": one.ladder.own, "paper": one.paper.own} for one in results.weighed
        },
        "keys_a_prompt": {
            one.workload.name: {"ladder": one.ladder.keys, "paper": one.paper.keys} for one in results.weighed
        },
        "workloads": {
            one.workload.name: {
                "source": one.workload.source,
                "requests": one.workload.prompt.size,
                "hit_ratio": one.workload.hit_ratio,
            }
            for one in results.weighed
        },
        "networks": {
            one.network.name: {
                "source": one.network.source,
                "first_lengths": one.first_lengths,
                "keys_4096": {"ladder": one.keys[0], "paper": one.keys[1]},
                "capture": {"ladder": one.shares[0], "paper": one.shares[1]},
            }
            for one in results.elsewhere
        },
        "figure_5b": {
            "workload": results.weighed[-1].workload.name,
            "exact_ms": results.exact_ms,
            "saved_ms": {budget.name: budget.saved_ms for budget in results.budgets},
        },
        "sweep": {
            one.workload.name: [
                {
                    "family": point.rule.family,
                    "label": point.rule.label,
                    "keys_4096": point.rule.keys_of(PROMPT),
                    "lengths": point.rule.registered.size,
                    **asdict(point.captured),
                }
                for point in one.points
            ]
            for one in results.weighed
        },
    }
