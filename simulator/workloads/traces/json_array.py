"""A file that is one long JSON array, read object by object."""

from collections.abc import Iterator
from json import JSONDecodeError, JSONDecoder
from pathlib import Path
from typing import Any, Final, TextIO

from simulator.workloads.traces.row import Row, TraceError, unreadable

_PIECE: Final = 1 << 20
"""Characters read at once."""


class _Pieces:
    """What of a file has been read and not yet been decoded."""

    def __init__(self, path: Path, file: TextIO) -> None:
        self._path = path
        self._file = file
        self._text = ""
        self._at = 0
        self._decoder = JSONDecoder()
        self.line = 1

    def after(self, passed_over: str) -> str:
        """Pass over characters and return the next one, which stays; empty at the file's end."""
        while True:
            while self._at < len(self._text):
                character = self._text[self._at]
                if character not in passed_over:
                    return character
                self._pass(self._at + 1)
            if not self._more():
                return ""

    def object(self) -> dict[str, Any]:
        """Decode the next value."""
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except JSONDecodeError as error:
                if self._more():
                    continue
                raise self.error(f"not valid JSON: {error.msg}") from error
            except (ValueError, RecursionError) as error:
                raise self.error(unreadable(error)) from error
            if not isinstance(value, dict):
                raise self.error("expected objects {...} in the array")
            self._pass(end)
            return value

    def error(self, message: str) -> TraceError:
        """Return an error that names file and line."""
        return TraceError(f"{self._path}, line {self.line}: {message}", field="")

    def _pass(self, to: int) -> None:
        self.line += self._text.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        piece = self._file.read(_PIECE)
        self._text = self._text[self._at :] + piece
        self._at = 0
        return bool(piece)


def array_rows(path: Path) -> Iterator[Row]:
    """Read a JSON array of objects, holding a piece of the file and one object at a time.

    A row's line is that on which it begins.

    Raises:
        TraceError: The file cannot be read, or is no such array.
    """
    try:
        with path.open(encoding="utf-8") as file:
            pieces = _Pieces(path, file)
            if pieces.after(" \t\r\n") != "[":
                raise pieces.error("expected a JSON array [ ... ]; one request a line belongs into a .jsonl")
            pieces.after("[ \t\r\n")
            while pieces.after(", \t\r\n") != "]":
                line = pieces.line
                yield Row(path, line, pieces.object())
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}", field="workload") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}, after line {pieces.line}: not UTF-8", field="workload") from error
