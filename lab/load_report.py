"""What a fleet that is up did with a load: for the users of each region, and for all."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from lab.record import Record
from lab.report import Quantiles


@dataclass(frozen=True, slots=True)
class Counts:
    """Counters of an edge."""

    cross_region_hits: int
    wrong_claims: int

    def __sub__(self, earlier: "Counts") -> "Counts":
        """What was counted since; an edge that started anew meanwhile counts from 0."""
        return Counts(
            _since(self.cross_region_hits, earlier.cross_region_hits),
            _since(self.wrong_claims, earlier.wrong_claims),
        )


@dataclass(frozen=True, slots=True)
class LoadRow:
    """Requests of the users of one region, or of all. Times in ms, at the client."""

    requests: int
    errors: int
    ttft_ms: Quantiles
    e2e_ms: Quantiles
    reused_tokens: int
    recomputed_tokens: int
    cross_region_hits: int | None
    """As the edges count; None when they do not tell."""
    wrong_claims: int | None


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The table, and what `--json` has beside the records."""

    regions: Mapping[str, LoadRow]
    total: LoadRow


def load_report(
    regions: Sequence[str], records: Sequence[Record], counts: Mapping[str, Counts] | None
) -> LoadReport:
    """`counts`: what the edge of each region counted while the requests ran."""
    return LoadReport(
        regions={
            region: _row(
                [record for record in records if record.region == region],
                None if counts is None else [counts[region]],
            )
            for region in regions
        },
        total=_row(records, None if counts is None else list(counts.values())),
    )


_FIGURES: tuple[tuple[str, Callable[[LoadRow], str]], ...] = (
    ("requests", lambda row: f"{row.requests:,}"),
    ("errors", lambda row: f"{row.errors:,}"),
    ("TTFT P50, ms", lambda row: f"{row.ttft_ms.p50:,.0f}"),
    ("TTFT P95, ms", lambda row: f"{row.ttft_ms.p95:,.0f}"),
    ("end to end P50, ms", lambda row: f"{row.e2e_ms.p50:,.0f}"),
    ("end to end P95, ms", lambda row: f"{row.e2e_ms.p95:,.0f}"),
    ("reused tokens", lambda row: f"{row.reused_tokens:,}"),
    ("recomputed tokens", lambda row: f"{row.recomputed_tokens:,}"),
    ("cross-region hits", lambda row: _or_dash(row.cross_region_hits)),
    ("wrong claims", lambda row: _or_dash(row.wrong_claims)),
)


def print_load(console: Console, report: LoadReport, heading: str) -> None:
    """The heading, and a table with a column a region."""
    console.print(heading, highlight=False, soft_wrap=True)
    table = Table()
    table.add_column("users in", no_wrap=True)
    for region in (*report.regions, "all"):
        table.add_column(region, justify="right", no_wrap=True)
    for title, cell in _FIGURES:
        table.add_row(title, *(cell(row) for row in (*report.regions.values(), report.total)))
    console.print(table)


def _row(records: Sequence[Record], counts: Iterable[Counts] | None) -> LoadRow:
    counted = None if counts is None else list(counts)
    return LoadRow(
        requests=len(records),
        errors=sum(bool(record.error) for record in records),
        ttft_ms=Quantiles.of([record.ttft_ms for record in records if record.ttft_ms is not None]),
        e2e_ms=Quantiles.of([record.e2e_ms for record in records if record.e2e_ms is not None]),
        reused_tokens=sum(record.cached_tokens for record in records),
        recomputed_tokens=sum(record.recomputed_tokens for record in records),
        cross_region_hits=None if counted is None else sum(each.cross_region_hits for each in counted),
        wrong_claims=None if counted is None else sum(each.wrong_claims for each in counted),
    )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _since(now: int, earlier: int) -> int:
    return now - earlier if now >= earlier else now
