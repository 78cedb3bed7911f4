"""How much was measured, in words: what runs found, not what was asked of them."""

from collections.abc import Sequence

from simulator.results.rows import Row


def measured(rows: Sequence[Row]) -> str:
    """Say how many requests a run measured and over how long, from the least of all runs to the most."""
    runs = [run for row in rows for run in row.runs]
    requests, seconds = [run.requests for run in runs], [run.seconds for run in runs]
    form = "{:,.0f}" if min(seconds) >= 10.0 else "{:.2g}"
    return f"{_span(requests, '{:,}')} requests in {_span(seconds, form)} s"


def _span(values: Sequence[float], form: str) -> str:
    least, most = form.format(min(values)), form.format(max(values))
    return least if least == most else f"{least} to {most}"
