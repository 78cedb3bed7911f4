"""The lab's tables on the terminal."""

from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table

from lab.facts import Facts
from lab.report import PolicyReport

_TITLES = {
    "kvcompass": "KVCompass",
    "regional": "regional",
    "round_robin": "round robin",
}
_LESS_IS_BETTER, _MORE_IS_BETTER, _NEITHER = -1, 1, 0

_ROWS: tuple[tuple[str, Callable[[PolicyReport], float], str, int], ...] = (
    ("TTFT P50, ms", lambda report: report.ttft_ms.p50, "{:,.0f}", _LESS_IS_BETTER),
    ("TTFT P95, ms", lambda report: report.ttft_ms.p95, "{:,.0f}", _LESS_IS_BETTER),
    ("end to end P50, ms", lambda report: report.e2e_ms.p50, "{:,.0f}", _LESS_IS_BETTER),
    ("end to end P95, ms", lambda report: report.e2e_ms.p95, "{:,.0f}", _LESS_IS_BETTER),
    ("reused tokens", lambda report: report.reused_tokens, "{:,}", _MORE_IS_BETTER),
    ("recomputed tokens", lambda report: report.recomputed_tokens, "{:,}", _LESS_IS_BETTER),
    ("cross-region hits", lambda report: report.cross_region_hits, "{:,}", _NEITHER),
    ("wrong claims", lambda report: report.wrong_claims, "{:,}", _NEITHER),
    ("peak load factor, 30 s", lambda report: report.peak_load_factor, "{:.2f}", _LESS_IS_BETTER),
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
        soft_wrap=True,
    )
    console.print(
        f"Shared: {shares.shared_part:.0%} of the requests share a prefix of at least {shares.threshold:,} "
        f"tokens (the longest first_length) with an earlier one; "
        f"{shares.shared_elsewhere_only_part:.0%} only with requests of other regions.",
        highlight=False,
        soft_wrap=True,
    )


def print_table(console: Console, reports: Mapping[str, PolicyReport]) -> None:
    """One column a policy; the best of a row is bold where there is a best."""
    table = Table()
    table.add_column("model ms; bold is best", no_wrap=True)
    for policy in reports:
        table.add_column(_TITLES.get(policy, policy), justify="right", no_wrap=True)
    for heading, value, form, better in _ROWS:
        values = [value(report) for report in reports.values()]
        table.add_row(heading, *(_cell(each, values, form, better) for each in values))
    console.print(table)
    console.print(
        "Cross-region hit: served better from another region's cache. Its claim beat every match in the "
        "user's region, and the engine reused at least the claim. Regional: each region alone, with "
        "prefix-aware routing. Round robin: over all workers of the world.",
        soft_wrap=True,
        highlight=False,
    )


def _cell(value: float, row: list[float], form: str, better: int) -> str:
    text = form.format(value)
    is_best = better != _NEITHER and value * better == max(each * better for each in row)
    return f"[bold]{text}[/bold]" if is_best and len(set(row)) > 1 else text
