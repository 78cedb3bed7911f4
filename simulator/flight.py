"""A request between its dispatch and its end."""

from dataclasses import dataclass

from simulator.request import Request
from simulator.router import Passage


@dataclass(slots=True)
class Flight:
    """Where a request is, and the way back."""

    request: Request
    worker: int
    sender: int
    """Region that it was dispatched from."""
    passage: Passage | None
    """What stands there, until the whole answer is past it; the answer comes back that way."""
    cached_tokens: int = 0
    cached_host_tokens: int = 0
    """PD: what the prefill engine reused."""
