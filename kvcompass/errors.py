"""The three kinds of error: programmers' (assertions), expected (values, counted) and operating (these)."""

from collections.abc import Mapping
from typing import Final

_EXCERPT: Final = 64


class KVCompassError(Exception):
    """An operating error. `field` names what is wrong, the message says how to mend it."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


def excerpt(text: str) -> str:
    """What somebody unknown has sent, as a message or a log may quote it: printable, and short."""
    if len(text) <= _EXCERPT:
        return repr(text)
    return f"{text[:_EXCERPT]!r} and {len(text) - _EXCERPT} letters more"


class PlanError(KVCompassError):
    """The plan is faulty. `faults` holds one (TOML path, message) per fault.

    `ids` holds what an entry such as `worker[3]` calls itself, for the message.
    """

    def __init__(self, faults: tuple[tuple[str, str], ...], ids: Mapping[str, str] | None = None) -> None:
        lines = [f"{path}{_called(path, ids or {})}: {message}" for path, message in faults]
        super().__init__("\n".join(lines), field=faults[0][0])
        self.faults = faults


def _called(path: str, ids: Mapping[str, str]) -> str:
    entry, _, name = path.partition(".")
    return f" ({ids[entry]})" if name != "id" and entry in ids else ""


class LayoutMismatchError(KVCompassError):
    """Two components disagree on a field of the layout digest; no key of one would match the other's."""


class ProtocolError(KVCompassError):
    """A peer broke the replication protocol (a message that is malformed, or not the stream's own)."""
