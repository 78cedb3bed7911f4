"""Rows as a table on the terminal: a column a policy, the best of a line bold and with a star."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from simulator.results.measured import measured
from simulator.results.metrics import ALL_METRICS, Better, BoundMetric, Metric
from simulator.results.names import title
from simulator.results.rows import Row
from simulator.results.spread import Spread

_HEADING: Final = 42
_COLUMN: Final = 20
_PIPED_WIDTH: Final = 182


def wide(console: Console) -> None:
    """Output into a file or a pipe is not folded to some terminal's width."""
    if not console.is_terminal:
        console.width = max(console.width, _PIPED_WIDTH)


def print_rows(console: Console, rows: Sequence[Row], unit: str) -> None:
    """Print a table for each workload and load, in `unit`; what does not fit beside goes below.

    At the foot of all of them stands what was measured and what the words mean.
    """
    a_table = max(1, (console.width - _HEADING) // _COLUMN)
    for workload, load in dict.fromkeys((row.workload, row.load) for row in rows):
        there = [row for row in rows if (row.workload, row.load) == (workload, load)]
        for start in range(0, len(there), a_table):
            console.print(_table(there, there[start : start + a_table], unit))
    if rows:
        console.print(_foot(rows), highlight=False, markup=False, soft_wrap=True)


def _foot(rows: Sequence[Row]) -> str:
    several = "" if sum(len(row.runs) for row in rows) == 1 else ", each run"
    seeds = max(len(row.seeds) for row in rows)
    interval = "One seed: no interval." if seeds == 1 else "±: half of a 95 % interval over the seeds."
    return (
        f"Measured: {measured(rows)}{several}. TTFT: time to first token, since the request was at its edge; "
        f"P99: 99 of 100 took no longer. * and bold: best of its line. {interval}"
    )


def _table(all_rows: Sequence[Row], shown: Sequence[Row], unit: str) -> Table:
    seeds = len(shown[0].seeds)
    of_seeds = "" if seeds == 1 else f", {seeds} seeds"
    table = Table()
    table.add_column(f"{shown[0].workload}, {shown[0].load:g} {unit}{of_seeds}", no_wrap=True)
    for row in shown:
        table.add_column(title(row.policy, row.is_bound), justify="right", no_wrap=True)
    for metric in ALL_METRICS:
        if any(row.figures[metric.name] is not None for row in all_rows):
            table.add_row(metric.title, *(_cell(metric, row, all_rows) for row in shown))
    return table


def _cell(metric: Metric | BoundMetric, row: Row, rows: Sequence[Row]) -> Text:
    spread = row.figures[metric.name]
    if spread is None:
        return Text("-")
    text = said(metric, spread)
    values = [
        other.value for each in rows if not each.is_bound and (other := each.figures[metric.name]) is not None
    ]
    is_best = (
        metric.better is not Better.NEITHER
        and not row.is_bound
        and len(set(values)) > 1
        and spread.value == max(values, key=lambda value: metric.better * value)
    )
    return Text(f"* {text}", style="bold") if is_best else Text(text)


def said(metric: Metric | BoundMetric, spread: Spread) -> str:
    """Return a figure with half the width of its interval, where several seeds give one."""
    text = metric.form.format(spread.value)
    if spread.low is None or spread.high is None:
        return text
    return f"{text} ±{metric.form.format((spread.high - spread.low) / 2)}"
