"""A router that listens to nothing: what rivals build on, each overriding what it cares for."""

from collections.abc import Sequence

from kvcompass.engine_events import EngineEvent
from simulator.request import Request


class Indifferent:
    """Hears of cache events, first tokens and ends, and does nothing."""

    def cache_events(self, worker: int, events: Sequence[EngineEvent]) -> None:
        """Of no interest."""

    def first_token(self, request: Request, worker: int) -> None:
        """Of no interest."""

    def finished(self, request: Request, worker: int, cached_tokens: int) -> None:
        """Of no interest."""

    def lost(self, request: Request, worker: int) -> None:
        """Of no interest."""
