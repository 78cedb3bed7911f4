"""Server-sent events on their way to the client: whole events out, usage read, unasked usage taken out."""

import re
from typing import Any

import orjson

_BOUNDARY = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_HAS_USAGE = re.compile(rb'"usage"\s*:\s*\{')
"""Inside a JSON string the quotes would be escaped, so this matches a real `usage` object only."""


class EventStream:
    """Splits a byte stream into events and passes them on byte for byte.

    `strip_usage` takes out the chunk that carries only usage (`choices: []`), which the edge asked for and
    the client did not. `usage` is the last usage object seen. An event longer than `max_event_bytes` cannot
    be usage: it passes through, and from then on so does everything.
    """

    __slots__ = ("_pending", "_raw", "_scanned", "_strip", "events", "max_event_bytes", "usage")

    def __init__(self, *, strip_usage: bool, max_event_bytes: int = 1 << 20) -> None:
        self._strip = strip_usage
        self._pending = bytearray()
        self._scanned = 0
        self._raw = False
        self.max_event_bytes = max_event_bytes
        self.usage: dict[str, Any] | None = None
        self.events = 0

    def feed(self, data: bytes) -> bytes:
        """What may be sent now, possibly nothing. Cost: one scan of `data`."""
        if self._raw:
            return data
        pending = self._pending
        pending += data
        out = bytearray()
        start = 0
        # A boundary may straddle two pieces: look again at the last three bytes.
        for boundary in _BOUNDARY.finditer(pending, max(0, self._scanned - 3)):
            event = bytes(pending[start : boundary.end()])
            start = boundary.end()
            if self._keep(event):
                out += event
        del pending[:start]
        self._scanned = len(pending)
        if len(pending) > self.max_event_bytes:
            self._raw = True
            out += pending
            pending.clear()
        return bytes(out)

    def close(self) -> bytes:
        """The rest of a stream that ended without a last boundary."""
        rest = bytes(self._pending)
        self._pending.clear()
        return rest if rest and self._keep(rest) else b""

    def _keep(self, event: bytes) -> bool:
        self.events += 1
        if not _HAS_USAGE.search(event):
            return True
        chunk = _json_data(event)
        if chunk is None or not isinstance(chunk.get("usage"), dict):
            return True
        self.usage = chunk["usage"]
        return not self._strip or chunk.get("choices") != []


def _json_data(event: bytes) -> dict[str, Any] | None:
    lines = [line[5:] for line in event.splitlines() if line.startswith(b"data:")]
    try:
        chunk = orjson.loads(b"\n".join(lines))
    except orjson.JSONDecodeError:
        return None
    return chunk if isinstance(chunk, dict) else None


def error_event(body: bytes) -> bytes:
    """An OpenAI error as an event: how a client of a started stream learns that its answer is cut."""
    return b"data: " + body + b"\n\n"
