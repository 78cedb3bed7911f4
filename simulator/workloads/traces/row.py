"""One row of a file, whose faults say where they are: file, line and field."""

import json
from collections.abc import Iterator
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Final

from simulator.errors import SimulationError
from simulator.workloads.tokens import TOKENS_MOST

_ONE_A_LINE: Final = "write one object {...} a line, without an array around them"


class TraceError(SimulationError):
    """A recorded workload cannot be read; `field` names the field."""


class Row:
    """Values of one row, read by name and type."""

    __slots__ = ("_line", "_path", "_values")

    def __init__(self, path: Path, line: int, values: dict[str, Any]) -> None:
        self._path = path
        self._line = line
        self._values = values

    @property
    def fields(self) -> list[str]:
        """Names of all fields that are there."""
        return list(self._values)

    def __contains__(self, field: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(field) is not None

    def error(self, field: str, message: str) -> TraceError:
        """Return the error to raise for a field."""
        return TraceError(f"{self._path}, line {self._line}, {field}: {message}", field=field)

    def value(self, field: str) -> Any:
        """Return a field that must be there, whatever its type."""
        if field not in self:
            raise self.error(field, f"missing; this row has {', '.join(self._values) or 'no fields'}")
        return self._values[field]

    def integer(self, field: str, *, least: int = 0) -> int:
        """Return an integer, at least `least`; text that spells one is taken too."""
        value = self.value(field)
        if isinstance(value, str):
            try:
                value = int(value)
            except ValueError:
                raise self.error(field, f"{value!r:.80} is not an integer") from None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(field, f"{value!r:.80} is not an integer")
        if value < least:
            raise self.error(field, f"{value} is below {least}")
        return value

    def tokens(self, field: str, *, least: int = 0) -> int:
        """Return a number of tokens, at least `least` and below TOKENS_MOST."""
        count = self.integer(field, least=least)
        if count >= TOKENS_MOST:
            raise self.error(
                field, f"{count!s:.20} tokens are more than a text may have, {TOKENS_MOST - 1:,}"
            )
        return count

    def number(self, field: str) -> float:
        """Return a finite number that is not negative."""
        value = self.value(field)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
            raise self.error(field, f"{value!r} is not a number from 0 on")
        return float(value)

    def text(self, field: str) -> str:
        """Return a string."""
        value = self.value(field)
        if not isinstance(value, str):
            raise self.error(field, f"{value!r:.80} is not a string")
        return value

    def integers(self, field: str) -> list[int]:
        """Return a list of integers from 0 on."""
        value = self.value(field)
        if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
            raise self.error(field, f"{value!r:.80} is not a list of integers from 0 on")
        return value

    def rows(self, field: str) -> list["Row"]:
        """Return a list of objects."""
        value = self.value(field)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(field, f"{value!r:.80} is not a list of objects")
        return [Row(self._path, self._line, item) for item in value]


def unreadable(error: Exception) -> str:
    """Say what of valid JSON Python does not read."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return "a number has too many digits"


def json_rows(path: Path) -> Iterator[Row]:
    """Read a file of one JSON object a line, row by row. Empty lines are passed over.

    Raises:
        TraceError: The file cannot be read, or a line is no JSON object.
    """
    for number, line in text_lines(path):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except JSONDecodeError as error:
            # An array over many lines is no JSON by its first line, which is `[`.
            hint = f"; {_ONE_A_LINE}" if line.lstrip().startswith("[") else ""
            message = f"{path}, line {number}, column {error.colno}: not valid JSON: {error.msg}{hint}"
            raise TraceError(message, field="") from error
        except (ValueError, RecursionError) as error:
            raise TraceError(f"{path}, line {number}: {unreadable(error)}", field="") from error
        if not isinstance(values, dict):
            raise TraceError(f"{path}, line {number}: {_ONE_A_LINE}", field="")
        yield Row(path, number, values)


def text_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Read a text file line by line, numbered from 1.

    Raises:
        TraceError: The file cannot be read, or is not UTF-8.
    """
    number = 0
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                number += 1
                yield number, line
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}", field="workload") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}, line {number + 1}: not UTF-8", field="workload") from error
