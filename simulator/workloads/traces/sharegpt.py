"""ShareGPT's JSON: one array of conversations, read piece by piece."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from simulator.workloads.traces.conversations import Told, exchanges
from simulator.workloads.traces.json_array import array_rows
from simulator.workloads.traces.row import Row
from simulator.workloads.traces.trace import Entry

_ROLES: Final = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "assistant": "assistant",
    "system": "system",
    "tool": "user",
}


def read_sharegpt(path: Path, told: Told) -> Iterator[Entry]:
    """Read objects of `conversations`, lists of `from` and `value`. They carry no times.

    Raises:
        TraceError: With file, line and field.
    """
    for row in array_rows(path):
        if "conversations" not in row and "prompt" in row:
            raise row.error("conversations", "missing; write your own requests one a line, in a .jsonl")
        messages = row.rows("conversations")
        pairs = exchanges([(_role(message), message.text("value")) for message in messages])
        if pairs:
            yield told.entry(None, pairs, None)


def _role(message: Row) -> str:
    given = message.text("from")
    if given not in _ROLES:
        raise message.error("from", f"{given!r} is not one of {', '.join(_ROLES)}")
    return _ROLES[given]
