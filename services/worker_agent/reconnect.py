"""How a connection is tried again: capped, jittered pauses, and one line of log for each new reason."""

import random
from typing import Final

import grpc.aio

from kvcompass.errors import LayoutMismatchError
from kvcompass.roles.messages import STREAM_FIELD

_FIRST_S: Final = 0.1
_LONGEST_S: Final = 2.0
"""A healed partition is noticed within this time."""
_REFUSED_S: Final = 5.0
"""A refusal of what a component is lasts until somebody changes a plan."""


class Backoff:
    """Pauses that double from 0.1 s to 2 s, each shortened by up to a half at random."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_S

    def reset(self) -> None:
        """The connection was of use: begin with short pauses again."""
        self._pause_s = _FIRST_S

    def next_s(self, least_s: float = 0.0) -> float:
        """Return the next pause, in seconds; before its jitter it is at least `least_s`."""
        pause_s = max(self._pause_s, least_s)
        self._pause_s = min(2 * self._pause_s, _LONGEST_S)
        return pause_s * random.uniform(0.5, 1.0)  # noqa: S311


def refused_s(error: LayoutMismatchError) -> float:
    """Return how long to wait at least after a refusal, in seconds; a new stream may be opened at once."""
    return 0.0 if error.field == STREAM_FIELD else _REFUSED_S


def reason_of(error: Exception) -> str:
    """Return why a stream ended, in a line."""
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error) or type(error).__name__
