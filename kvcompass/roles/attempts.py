"""What an attempt at a worker is, and how it ends."""

from dataclasses import dataclass
from enum import Enum

from kvcompass.routing.decision import Decision


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a request at one worker."""

    flight: int
    """Names it within the edge's role."""
    worker: int
    """Index of the plan's workers: the one asked for."""
    worker_id: str
    region: str
    peer: str = ""
    """The edge of another region that it goes through; empty when the worker is of the own region."""
    allowance: int = 1
    """How many attempts of the request's budget it may use: a peer edge may try siblings."""
    decision: Decision | None = None
    """None at the edge of the worker's region, where the origin has decided."""
    residual_ms: float = 0.0
    """Prefill that the worker is expected to do."""


class Fault(Enum):
    """Why an attempt gave no whole answer."""

    REFUSED = "refused"
    """Answered "not here, not now"."""
    UNREACHABLE = "unreachable"
    """No connection: it has certainly not seen the request."""
    BROKEN = "broken"
    """The connection ended before any answer."""
    SILENT = "silent"
    """Nothing came within the bound."""
    CUT = "cut"
    """The answer had begun to arrive, and broke."""
    OVERSIZED = "oversized"
    """The answer is larger than this edge holds: so would every other be."""
    CANCELLED = "cancelled"
    """The client left, or its time was over: nobody's fault."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of an attempt that gave no whole answer."""

    fault: Fault
    retry_after_us: int = 0
    """With REFUSED: how long the worker asks to be left alone."""
    used: int = 1
    """With REFUSED by a peer edge: the attempts it made."""
    begun: bool = False
    """The client has got the first byte: nothing else may be tried."""
    worker: int | None = None
    """Who was answering, when a sibling had stepped in."""
