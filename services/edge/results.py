"""How an attempt ends, and what that means for whoever asked."""

from dataclasses import dataclass
from typing import Any

from services.edge import errors
from services.edge.errors import ApiError
from services.edge.upstream import Trouble


@dataclass(frozen=True, slots=True)
class Served:
    """The upstream's answer reached the client whole, whatever its status."""

    status: int
    usage: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Refused:
    """A 502, 503 or 504. Nothing was sent to the client: another worker may be tried."""

    status: int
    retry_after_s: float


@dataclass(frozen=True, slots=True)
class Broke:
    """The upstream failed. `begun`: after the client had got the first byte, so nothing else may be tried."""

    trouble: Trouble
    begun: bool

    @property
    def blames_upstream(self) -> bool:
        """False when the bound that was hit is our own."""
        return self.trouble is not Trouble.OVERSIZED


Result = Served | Refused | Broke


def cause(result: Result) -> str:
    """Why another attempt is made: a metric label."""
    match result:
        case Broke(trouble=trouble):
            return trouble.value
        case Refused(status=status):
            return f"status_{status}"
        case Served():
            return "none"


def last_word(result: Result) -> ApiError:
    """The error for a client when no attempt is left."""
    match result:
        case Broke(trouble=Trouble.SILENT):
            return errors.upstream_timeout("No worker answered in time.")
        case Refused(status=status, retry_after_s=seconds):
            return errors.no_worker(f"Every worker tried refused; the last answered {status}.", seconds)
        case _:
            return errors.upstream_failed("Every worker tried failed before its first byte.")
