"""Azure's LLM inference traces: times and lengths, no content."""

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from simulator.request import Request
from simulator.workloads.tokens import TokenSource
from simulator.workloads.traces.regions import Regions
from simulator.workloads.traces.row import Row, TraceError, text_lines
from simulator.workloads.traces.trace import Entry, InOrder
from simulator.workloads.workload import Turn

_FIELDS: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_azure(path: Path, regions: Regions, tokens: TokenSource) -> Iterator[Entry]:
    """Read a CSV of `TIMESTAMP`, `ContextTokens` and `GeneratedTokens`.

    The trace tells nothing of content, so every prompt is fresh and nothing can be reused: it is for lengths
    and times.

    Raises:
        TraceError: With file, line and field.
    """
    lines = (line for _, line in text_lines(path))
    table = csv.DictReader(lines)
    try:
        yield from _entries(path, table, regions, tokens)
    except csv.Error as error:
        raise TraceError(f"{path}, line {table.line_num + 1}: {error}", field="") from error


def _entries(
    path: Path, table: "csv.DictReader[str]", regions: Regions, tokens: TokenSource
) -> Iterator[Entry]:
    missing = [name for name in _FIELDS if name not in (table.fieldnames or ())]
    if missing:
        raise TraceError(f"{path}, line 1, {missing[0]}: no such column in the header", field=missing[0])
    times = InOrder()
    for values in table:
        row = Row(path, table.line_num, values)
        at_us = times.check(row, "TIMESTAMP", _microseconds(row))
        length = row.tokens("ContextTokens", least=1)
        answer = max(1, row.tokens("GeneratedTokens"))
        yield _entry(tokens, regions, at_us, length, answer)


def _entry(tokens: TokenSource, regions: Regions, at_us: int, length: int, answer: int) -> Entry:
    def begin(id_: int, arrives_us: int) -> Turn:
        return Turn(Request(id_, arrives_us, regions.next(), tokens.fresh(length), tokens.answer(answer)))

    return Entry(at_us, 1, begin)


def _microseconds(row: Row) -> int:
    """Read `2023-11-16 18:17:03.9799600`; digits below a microsecond are left out."""
    text = row.text("TIMESTAMP")
    try:
        at = datetime.fromisoformat(text[:26]).replace(tzinfo=UTC)
    except ValueError:
        raise row.error("TIMESTAMP", f"{text!r} is not a time like 2023-11-16 18:17:03.979960") from None
    return int(at.timestamp()) * 1_000_000 + at.microsecond
