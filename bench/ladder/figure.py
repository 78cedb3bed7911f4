"""The plots: the paper's Figure 5(b), and captured savings by registered keys, a panel a workload."""

from bench.ladder.capture import Captured
from bench.ladder.plot import Line, Panel, draw
from bench.ladder.results import Results, Weighed

DRAWN = {
    "paper's rule": "the paper's rule, 1 to 12 levels",
    "fixed grid of 512": "first levels of a grid of 512",
    "whole grid": "whole grids of 256 to 2,048",
    "geometric, quantum 128": "constant ratio 1.1 to 2, quantum 128",
    "ladder, quantum 128": "square root, stretch 0.4 to 1.4",
    "best for this workload": "best list across regions, knowing the workload",
}


def svg(results: Results) -> str:
    """All panels."""
    shown = [one for one in results.weighed if one.workload.name != "mooncake"] or results.weighed
    panels = [_panel(one, own) for one in shown for own in (False, True)]
    return draw([*panels, _figure_5b(results)])


def _panel(one: Weighed, own: bool) -> Panel:
    lines = []
    for family, name in DRAWN.items():
        points = [_place(point.captured, own) for point in one.points if point.rule.family == family]
        lines.append(Line(name, sorted(points)))
    lines.append(Line("the default", [_place(one.ladder, own)], marked=True))
    most = 3 * one.ladder.keys
    x_most = next(size for size in (5, 10, 15, 20, 25, 50, 75, 100, 200, 500) if size >= most)
    kind = " (synthetic)" if "synthetic" in one.workload.source else ""
    title = f"{one.workload.name}{kind}: {'own region' if own else 'across regions'}"
    return Panel(title, "registered keys a prompt, mean", "captured savings, %", x_most, 100, lines)


def _place(captured: Captured, own: bool) -> tuple[float, float]:
    return captured.keys, 100 * (captured.own if own else captured.share)


def _figure_5b(results: Results) -> Panel:
    lines = [
        Line(budget.name, [(level, saved) for level, saved in enumerate(budget.saved_ms, start=1)])
        for budget in results.budgets
    ]
    lines.append(Line("exact match", [(1, results.exact_ms), (12, results.exact_ms)]))
    most = next(size for size in (5, 10, 20, 25, 50, 100, 200, 500, 1_000) if size >= results.exact_ms)
    title = f"Figure 5(b) on {results.weighed[-1].workload.name}"
    return Panel(title, "levels per region pair", "TTFT saved, ms a request", 15, most, lines)
