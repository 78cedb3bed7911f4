"""The findings on the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from lab.faults.findings import Findings

_COLUMNS = (
    "recovered, s",
    "boot, s",
    "wrong claims",
    "failed",
    "blind",
    "requests",
    "cut",
    "lost at a killed edge",
    "other endpoint",
    "longest, s",
)


def print_findings(console: Console, rows: Sequence[Findings]) -> None:
    """One line a case; then every bound, and what went wrong."""
    table = Table()
    table.add_column("case", no_wrap=True)
    for title in _COLUMNS:
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row.case if row.ok else f"[red]{row.case}[/red]",
            _seconds(row.recovered_in_s),
            _seconds(row.boot_s),
            *(
                str(count)
                for count in (
                    row.wrong_claims,
                    row.failed_requests,
                    row.blind_decisions,
                    row.requests,
                    row.cut_answers,
                    row.lost_at_killed_edges,
                    row.at_another_endpoint,
                )
            ),
            _seconds(row.longest_request_s),
        )
    console.print(table)
    for row in rows:
        for bound in row.bounds:
            sign, colour = ("<=", "green") if bound.holds else (">", "red")
            console.print(
                f"[{colour}]{row.case}: {bound.what}: {_seconds(bound.took_s)} s {sign} "
                f"{bound.limit_s:g} s[/{colour}]"
            )
        for problem in row.problems:
            console.print(f"{row.case}: {problem}", style="red", markup=False)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
