"""The tables of a run, for the screen and for the document."""

from bench.ladder.results import PROMPT, Results, Weighed
from bench.ladder.rules import count_of_levels
from bench.ladder.sweep import DEFAULT, Point
from bench.tables import Row, plain


def percent(share: float) -> str:
    """One decimal."""
    return f"{100 * share:.1f} %"


def workloads(results: Results) -> tuple[Row, list[Row]]:
    """Default against paper, a row a workload."""
    head = (
        "workload",
        "ladder",
        "paper",
        "own region",
        "paper",
        "worst pair",
        "paper",
        "keys a prompt",
        "paper",
    )
    rows = [
        (
            one.workload.name,
            percent(one.ladder.share),
            percent(one.paper.share),
            percent(one.ladder.own),
            percent(one.paper.own),
            percent(one.ladder.least),
            percent(one.paper.least),
            f"{one.ladder.keys:.1f}",
            f"{one.paper.keys:.1f}",
        )
        for one in results.weighed
    ]
    return head, rows


def networks(results: Results) -> tuple[Row, list[Row]]:
    """Default against paper, a row a network."""
    first = results.weighed[0].workload.name
    head = ("network", "n1, tokens", f"keys of {PROMPT:,}", "paper", f"captured, {first}", "paper")
    rows = [
        (
            one.network.name,
            f"{one.first_lengths[0]:,} to {one.first_lengths[1]:,}",
            str(one.keys[0]),
            str(one.keys[1]),
            percent(one.shares[0]),
            percent(one.shares[1]),
        )
        for one in results.elsewhere
    ]
    return head, rows


def sweep(results: Results) -> tuple[Row, list[Row]]:
    """Every shared rule: keys, then captured share and keys a prompt by workload."""
    shown = [one for one in results.weighed if "part blocks" not in one.workload.name]
    columns = [_by_rule(one) for one in shown]
    names = [one.workload.name for one in shown]
    head = (
        "rule",
        f"keys of {PROMPT:,}",
        "lengths",
        *(f"{name}{what}" for name in names for what in ("", ", own", ", keys")),
    )
    rows = []
    for (family, label), point in columns[0].items():
        default = (family, label) == (results.ladder.family, results.ladder.label)
        cells = [
            cell
            for column in columns
            for cell in (
                percent(column[family, label].captured.share),
                percent(column[family, label].captured.own),
                f"{column[family, label].captured.keys:.1f}",
            )
        ]
        name = f"{family}: {label}{' (default)' if default else ''}"
        rows.append((name, str(point.rule.keys_of(PROMPT)), str(point.rule.registered.size), *cells))
    return head, rows


def _by_rule(one: Weighed) -> dict[tuple[str, str], Point]:
    return {
        (point.rule.family, point.rule.label): point
        for point in one.points
        if not point.rule.family.startswith(("best", "fixed"))
    }


def budgets(results: Results) -> tuple[Row, list[Row]]:
    """Figure 5(b) in shares of exact-match savings."""
    levels = (1, 2, 4, 6, 8, 12)
    head = ("lengths toward a region", *(count_of_levels(level) for level in levels))
    rows = [
        (budget.name, *(percent(budget.saved_ms[level - 1] / results.exact_ms) for level in levels))
        for budget in results.budgets
    ]
    return head, rows


def screen(results: Results) -> str:
    """What is printed."""
    network = results.setting.network
    title = (
        f"Captured share of exact-match savings over {len(network.pairs())} pairs of {network.name},"
        f" {results.setting.prefill_ms:g} ms/token; quantum {DEFAULT.quantum}, stretch {DEFAULT.stretch:g}:"
        f" {results.ladder.keys_of(PROMPT)} keys of {PROMPT:,} tokens (paper {results.paper.keys_of(PROMPT)})"
    )
    sources = "\n".join(f"{one.workload.name}: {one.workload.source}" for one in results.weighed)
    parts = [plain(*part(results)) for part in (workloads, networks, sweep, budgets)]
    return "\n\n".join([title, sources, *parts])
