"""Exports of WildChat and LMSYS-Chat-1M as JSON lines, one conversation a line."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from simulator.workloads.traces.conversations import Told, exchanges
from simulator.workloads.traces.row import Row, json_rows
from simulator.workloads.traces.trace import Entry, InOrder

_ROLES: Final = ("user", "assistant", "system")


def read_chat_export(path: Path, nearest: Mapping[str, int], told: Told) -> Iterator[Entry]:
    """Read `conversation` (a list of `role` and `content`), with `timestamp` and `country` where they are
    given.

    WildChat has both, LMSYS-Chat-1M neither. A row without a single answer is passed over.

    Args:
        path: The file.
        nearest: Index of the region nearest to each country, by name and by code. A conversation whose
            country is not told or not among these starts anywhere.
        told: How conversations are made.

    Raises:
        TraceError: With file, line and field.
    """
    times = InOrder()
    for row in json_rows(path):
        at_us = times.check(row, "timestamp", _microseconds(row)) if "timestamp" in row else None
        said = [(_role(message), message.text("content")) for message in row.rows("conversation")]
        pairs = exchanges(said)
        if not pairs:
            continue
        country = row.text("country") if "country" in row else ""
        yield told.entry(at_us, pairs, nearest.get(country))


def _role(message: Row) -> str:
    role = message.text("role")
    if role not in _ROLES:
        raise message.error("role", f"{role!r} is not one of {', '.join(_ROLES)}")
    return role


def _microseconds(row: Row) -> int:
    """Read an ISO time, or a number of seconds."""
    value = row.value("timestamp")
    if isinstance(value, int | float):
        return round(1e6 * row.number("timestamp"))
    try:
        at = datetime.fromisoformat(row.text("timestamp"))
    except ValueError:
        raise row.error("timestamp", f"{value!r} is no ISO time such as 2023-04-09T00:02:53+00:00") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return round(at.timestamp() * 1e6)
