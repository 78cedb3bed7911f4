"""Rows as a picture: distributions and bars of one load, curves over several."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from simulator.errors import SimulationError
from simulator.results.metrics import METRICS, Better, Metric
from simulator.results.names import title
from simulator.results.rows import CLAIRVOYANT, Row
from simulator.results.spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_OURS: Final = "kvcompass"
_OUR_COLOUR: Final = "#d1495b"
_COLOURS: Final = (
    "#1b6ca8",
    "#2a9d8f",
    "#e0a030",
    "#7b5ea7",
    "#b5651d",
    "#3a5a40",
    "#f28482",
    "#4cc9f0",
    "#9c6644",
    "#8d99ae",
    "#c77dff",
    "#606c38",
    "#0b525b",
)
"""Of the others, by place."""
_LINES: Final = ("-", ":", "-.")
"""Where there are more policies than colours, the next go through them once more, otherwise drawn."""
_NO_FACTOR: Final = "no load factor: run shorter than 30 s"
_MARKS: Final = "osD^vPX<>hp*d"
_LEAST_ROWS: Final = 5
"""Bars of a few policies are not drawn taller than those of so many."""
_FEW_DECADES: Final = 2.5
_BY_NAME: Final = {metric.name: metric for metric in METRICS}
_OVER_LOADS: Final = (
    ("ttft_p50_ms", True),
    ("ttft_p99_ms", True),
    ("e2e_p99_ms", True),
    ("output_tokens_per_s", False),
    ("reused_mtokens", False),
    ("peak_load_factor", False),
)
"""A panel each, and whether its axis is logarithmic."""


def need_plots(path: Path) -> None:
    """Find out whether a plot can be made of the kind that a file's suffix says.

    Raises:
        SimulationError: Matplotlib is not installed, or does not know the suffix.
    """
    if importlib.util.find_spec("matplotlib") is None:
        message = "plots need Matplotlib, which `make setup-simulator` installs; or leave the option out"
        raise SimulationError(message, field="png")
    from matplotlib.backend_bases import FigureCanvasBase  # slow, and not in every installation

    if path.suffix.removeprefix(".").lower() not in FigureCanvasBase.get_supported_filetypes():
        message = f"{path}: cannot be written: no kind of picture; name it .png, .svg or .pdf"
        raise SimulationError(message, field="png")


def save_plot(rows: Sequence[Row], path: Path, heading: str, unit: str) -> None:
    """Draw the rows of one workload, as PNG or what else the path's suffix says.

    Args:
        rows: Of one load or of several.
        path: Where to; its folder exists.
        heading: Above everything.
        unit: Of the loads.

    Raises:
        SimulationError: Matplotlib is not installed, or the file cannot be written.
    """
    need_plots(path)
    from matplotlib.figure import Figure

    several = len({row.load for row in rows}) > 1
    figure = Figure(figsize=(13.0, 8.6), dpi=110, layout="constrained")
    figure.suptitle(heading, fontsize=11)
    if several:
        _over_loads(figure, rows, unit)
    else:
        _one_load(figure, rows)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise SimulationError(f"{path}: cannot be written: {error}", field="png") from error


def _over_loads(figure: "Figure", rows: Sequence[Row], unit: str) -> None:
    policies = list(dict.fromkeys(row.policy for row in rows))
    panels, answered = figure.subplots(2, 3).flat, _answered(rows)
    for panel, (name, logarithmic) in zip(panels, _OVER_LOADS, strict=True):
        metric = _BY_NAME[name]
        for policy in policies:
            _curve(panel, metric, [row for row in rows if row.policy == policy], policies.index(policy))
        if logarithmic and answered:
            panel.set_yscale("log")
        _limit(panel, metric, rows, logarithmic)
        if logarithmic and answered:
            _plain_ticks(panel.yaxis)
        elif max(panel.get_ylim()) >= 1_000.0:
            panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.set_title(_titled(metric), fontsize=10)
        if not any(row.figures[name] for row in rows) and name == "peak_load_factor":
            panel.text(0.5, 0.5, _NO_FACTOR, transform=panel.transAxes, ha="center", fontsize=9)
        panel.set_xlabel(unit, fontsize=9)
        panel.set_xticks(sorted({row.load for row in rows}))
        panel.grid(visible=True, which="major", color="#e4e4e4")
        panel.tick_params(labelsize=8)
    _legend(figure)


def _limit(panel: "Axes", metric: Metric, rows: Sequence[Row], logarithmic: bool) -> None:
    """Show the values: an interval of two seeds may be many times as wide, and is cut."""
    values = [spread.value for row in rows if (spread := row.figures[metric.name]) is not None]
    if not values or (logarithmic and min(values) <= 0.0):
        return
    low, high = min(values), max(values)
    if logarithmic:
        panel.set_ylim(low / 1.6, high * 1.6)
    else:
        margin = max(0.1 * (high - low), 0.02 * abs(high), 1e-3)
        panel.set_ylim(low - margin, high + margin)


def _legend(figure: "Figure") -> None:
    """Below everything, of the first panel's curves: among them it would hide some."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    if labels:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=9)


def _curve(panel: "Axes", metric: Metric, rows: Sequence[Row], place: int) -> None:
    known = [(row.load, spread) for row in rows if (spread := row.figures[metric.name]) is not None]
    if not known:
        return
    loads, spreads = zip(*sorted(known, key=lambda each: each[0]), strict=True)
    first, ours = rows[0], rows[0].policy == _OURS
    panel.errorbar(
        loads,
        [spread.value for spread in spreads],
        yerr=np.array([_reach(spread) for spread in spreads]).T,
        label=title(first.policy, first.is_bound),
        color=_colour(first, place),
        marker=_MARKS[place % len(_MARKS)],
        markersize=5 if ours else 4,
        linewidth=2.4 if ours else 1.2,
        linestyle=_line(first, place),
        elinewidth=0.8,
        capsize=2,
        zorder=3 if ours else 2,
    )


def _reach(spread: Spread) -> tuple[float, float]:
    """How far the interval reaches below and above the value; an error bar cannot turn round."""
    if spread.low is None or spread.high is None:
        return 0.0, 0.0
    return max(spread.value - max(spread.low, 0.0), 0.0), max(spread.high - spread.value, 0.0)


def _one_load(figure: "Figure", rows: Sequence[Row]) -> None:
    (curves, times), (tokens, factors) = figure.subplots(2, 2)
    places = np.arange(len(rows))[::-1]
    names = [title(row.policy, row.is_bound) for row in rows]
    colours = [_colour(row, place) for place, row in enumerate(rows)]
    _distributions(curves, rows)
    _legend(figure)
    for name, mark in (("ttft_p50_ms", "o"), ("ttft_p99_ms", "s"), ("e2e_p99_ms", "|")):
        values = [spread.value if (spread := row.figures[name]) else np.nan for row in rows]
        times.scatter(values, places, marker=mark, s=36 if mark != "|" else 120, c=colours, zorder=3)
        times.scatter([], [], marker=mark, c="#606060", label=_BY_NAME[name].title)
    if _answered(rows):
        times.set_xscale("log")
        _plain_ticks(times.xaxis)
    times.set_title("times, ms", fontsize=10)
    times.legend(fontsize=8, loc="best")
    reused, computed = (
        [spread.value if (spread := row.figures[name]) else 0.0 for row in rows]
        for name in ("reused_mtokens", "recomputed_mtokens")
    )
    tokens.barh(places, reused, color=colours, label="reused")
    tokens.barh(places, computed, left=reused, color="#d9d9d9", label="recomputed")
    tokens.set_title("prompt tokens, millions: reused, then recomputed (grey)", fontsize=10)
    _factors(factors, rows, places, colours)
    for panel in (times, tokens, factors):
        panel.set_yticks(places, names, fontsize=8)
        panel.set_ylim(len(rows) - max(len(rows), _LEAST_ROWS) - 0.6, len(rows) - 0.4)
        panel.grid(visible=True, axis="x", color="#e4e4e4")
        panel.set_axisbelow(True)
        panel.tick_params(labelsize=8)


def _factors(panel: "Axes", rows: Sequence[Row], places: NDArray[np.int64], colours: list[str]) -> None:
    spreads = [row.figures["peak_load_factor"] for row in rows]
    panel.barh(places, [spread.value if spread else 0.0 for spread in spreads], color=colours)
    for place, spread in zip(places, spreads, strict=True):
        if spread is None:
            panel.text(0.02, place, _NO_FACTOR, va="center", fontsize=8)
    panel.axvline(1.0, color="black", linewidth=0.8)
    panel.set_title(_titled(_BY_NAME["peak_load_factor"]), fontsize=10)
    panel.set_xlabel("hottest worker's compute time over the mean; line at 1.0: all alike", fontsize=8)


def _titled(metric: Metric) -> str:
    return f"{metric.title} ({'higher' if metric.better is Better.MORE else 'lower'} is better)"


def _distributions(panel: "Axes", rows: Sequence[Row]) -> None:
    """The share of requests that had their first token after so long; the mean curve of the seeds."""
    for place, row in enumerate(rows):
        known = [run.ttft_curve_ms for run in row.runs if run.ttft_curve_ms]
        if not known:
            continue
        curve = np.mean(known, axis=0)
        ours = row.policy == _OURS
        panel.plot(
            np.maximum(curve, 1.0),
            np.linspace(0.0, 1.0, len(curve)),
            label=title(row.policy, row.is_bound),
            color=_colour(row, place),
            linewidth=2.4 if ours else 1.2,
            linestyle=_line(row, place),
            zorder=3 if ours else 2,
        )
    if panel.lines:
        panel.set_xscale("log")
        _plain_ticks(panel.xaxis)
    panel.set_title("share of requests with TTFT below, ms", fontsize=10)
    panel.grid(visible=True, color="#e4e4e4")
    panel.tick_params(labelsize=8)


def _answered(rows: Sequence[Row]) -> bool:
    """Whether there is any time to draw: what has no values has no logarithms."""
    return any(row.figures["ttft_p50_ms"] is not None for row in rows)


def _plain_ticks(axis: "Axis") -> None:
    """A logarithmic axis with figures such as 20 and 5,000, few enough to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = np.log10(high / low) if low > 0 else 1.0
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if decades <= _FEW_DECADES else (1.0,)))
    axis.set_major_formatter(
        FuncFormatter(lambda value, _place: f"{value:,.0f}" if value >= 1.0 else f"{value:g}")
    )
    axis.set_minor_formatter(NullFormatter())


def _colour(row: Row, place: int) -> str:
    if row.is_bound:
        return "black" if row.policy == CLAIRVOYANT else "#808080"
    return _OUR_COLOUR if row.policy == _OURS else _COLOURS[place % len(_COLOURS)]


def _line(row: Row, place: int) -> str:
    if row.is_bound:
        return "--"
    return "-" if row.policy == _OURS else _LINES[place // len(_COLOURS) % len(_LINES)]
