"""The lab's tables on the terminal."""

from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

from lab.facts import Facts
from lab.report import PolicyReport

_TITLES = {
    "kvcompass": "KVCompass",
    "regional": "each region alone",
    "round_robin": "round robin",
}
_LESS_IS_BETTER, _MORE_IS_BETTER, _NEITHER = -1, 1, 0

_COLUMNS: tuple[tuple[str, Callable[[PolicyReport], float], str, int], ...] = (
    ("TTFT P50\nms", lambda report: report.ttft_ms.p50, "{:,.0f}", _LESS_IS_BETTER),
    ("TTFT P95\nms", lambda report: report.ttft_ms.p95, "{:,.0f}", _LESS_IS_BETTER),
    ("e2e P50\nms", lambda report: report.e2e_ms.p50, "{:,.0f}", _LESS_IS_BETTER),
    ("e2e P95\nms", lambda report: report.e2e_ms.p95, "{:,.0f}", _LESS_IS_BETTER),
    ("reused\ntokens", lambda report: report.reused_tokens, "{:,}", _MORE_IS_BETTER),
    ("recomputed\ntokens", lambda report: report.recomputed_tokens, "{:,}", _LESS_IS_BETTER),
    ("served better\nfrom afar", lambda report: report.cross_region_hits, "{:,}", _NEITHER),
    ("wrong\nclaims", lambda report: report.wrong_claims, "{:,}", _NEITHER),
    ("peak load\nfactor", lambda report: report.peak_load_factor, "{:.2f}", _LESS_IS_BETTER),
    ("errors", lambda report: report.errors, "{:,}", _LESS_IS_BETTER),
)


def print_facts(console: Console, facts: Facts) -> None:
    """What was asked, and how much of it was shared."""
    shares = facts.shares
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(facts.kinds.items()))
    regions = ", ".join(f"{region} {count}" for region, count in facts.regions.items())
    console.print(
        f"Workload: {facts.workload_source}, seed {facts.seed}: {shares.requests} requests "
        f"({kinds}; {regions}) in {facts.duration_ms / 1e3:.0f} s, {shares.prompt_tokens:,} prompt tokens, "
        f"time scale {facts.time_scale:g}.",
        highlight=False,
    )
    console.print(
        f"Shared: {shares.shared_part:.0%} of the requests share a prefix of at least {shares.threshold:,} "
        f"tokens (the longest first_length) with an earlier one; "
        f"{shares.shared_elsewhere_only_part:.0%} only with requests of other regions.",
        highlight=False,
    )


def print_table(console: Console, reports: Mapping[str, PolicyReport]) -> None:
    """One row a policy; the best of a column is bold where there is a best."""
    table = Table(title="All times in model ms. Bold: best of the column.", title_justify="left")
    table.add_column("policy", no_wrap=True)
    for heading, _, _, _ in _COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for policy, report in reports.items():
        cells = [
            _cell(value(report), [value(other) for other in reports.values()], form, better)
            for _, value, form, better in _COLUMNS
        ]
        table.add_row(_TITLES.get(policy, policy), *cells)
    console.print(table)
    console.print(
        "Served better from afar: the claim beat every local match, and the engine reused as much or more.",
        highlight=False,
    )


def _cell(value: float, column: list[float], form: str, better: int) -> str:
    text = form.format(value)
    is_best = better != _NEITHER and value * better == max(each * better for each in column)
    return f"[bold]{text}[/bold]" if is_best and len(set(column)) > 1 else text
