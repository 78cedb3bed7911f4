"""What one HTTP listener takes from clients, known or not."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class HttpBounds:
    """Bounds of a listener; an application's own (of bodies, of requests in progress) come on top."""

    head_bytes: int = 64 << 10
    """Request line and headers; also a chunk's size line, or trailers."""
    head_s: float = 20.0
    """From connecting, or from a later request's first byte, to the end of the headers: several round trips
    and retransmissions of a slow link, and no longer."""
    stalled_s: float = 30.0
    """Without one byte of a full socket's buffer being taken: whoever reads at all, however slowly, stays."""
    connections: int = 4_096
    """Open at once; one more is answered 503 and closed."""


DEFAULT_BOUNDS = HttpBounds()


class Cut(StrEnum):
    """Why a connection was ended before its client was done with it. A closed set: it is a metric's label."""

    TOO_MANY = "too_many"
    """More connections than `HttpBounds.connections`."""
    HEAD_TOO_LARGE = "head_too_large"
    HEAD_TOO_LATE = "head_too_late"
    STALLED = "stalled"
    """Its socket was full, and nothing of it was taken."""
    MALFORMED = "malformed"
    """Not HTTP/1.1."""
