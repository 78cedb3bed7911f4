"""How an attempt ends, and what that means for whoever asked."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kvcompass.roles.attempts import Failure, Fault
from services.edge.requests import errors
from services.edge.requests.errors import ApiError


@dataclass(frozen=True, slots=True)
class Served:
    """The upstream's answer reached the client whole, whatever its status."""

    status: int
    usage: dict[str, Any] | None


class Denier(StrEnum):
    """Who takes no key of this edge's; its value is the setting that is wrong at one of the two."""

    ENGINE = "engine_key"
    PEER = "peer_key"

    @classmethod
    def of(cls, peer: str) -> "Denier":
        """By the peer edge of a hop; empty for an engine."""
        return cls.PEER if peer else cls.ENGINE


@dataclass(frozen=True, slots=True)
class Refused:
    """A 502, 503 or 504, or a key not taken. Nothing was sent to the client: another worker may be tried."""

    status: int
    retry_after_s: float
    used: int = 1
    """Attempts that a peer edge has made."""
    denied_by: Denier | None = None
    """Whose key is another. Through such a peer edge nobody is reached, whoever is asked for."""


@dataclass(frozen=True, slots=True)
class Broke:
    """The upstream failed. `begun`: after the client had got the first byte, so nothing else may be tried."""

    fault: Fault
    begun: bool


Result = Served | Refused | Broke


def failure(result: Refused | Broke | None, worker: int | None = None) -> Failure:
    """What the role learns of an attempt; None: it was cancelled. `worker`: who was answering, if known."""
    match result:
        case None:
            return Failure(Fault.CANCELLED)
        case Refused(denied_by=Denier.PEER):
            return Failure(Fault.UNREACHABLE)
        case Refused(retry_after_s=seconds, used=used):
            return Failure(Fault.REFUSED, retry_after_us=round(seconds * 1e6), used=used)
        case Broke(fault=fault, begun=begun):
            return Failure(fault, begun=begun, worker=worker)


def cause(result: Refused | Broke) -> str:
    """Why another attempt is made: a metric label."""
    return f"status_{result.status}" if isinstance(result, Refused) else result.fault.value


def last_word(result: Refused | Broke) -> ApiError:
    """The error for a client when no attempt is left."""
    match result:
        case Broke(fault=Fault.OVERSIZED):
            return errors.answer_too_large()
        case Broke(fault=Fault.SILENT):
            return errors.upstream_timeout("No worker answered in time.")
        case Refused(status=status, retry_after_s=seconds):
            return errors.no_worker(f"Every worker tried refused; the last answered {status}.", seconds)
        case _:
            return errors.upstream_failed("Every worker tried failed before its first byte.")
