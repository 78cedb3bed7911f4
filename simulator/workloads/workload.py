"""What is asked, apart from when: a workload gives turns of conversations, arrivals give them times."""

from dataclasses import dataclass
from typing import Protocol

from simulator.request import Request


class Conversation(Protocol):
    """A conversation that goes on after its latest turn."""

    @property
    def pause_us(self) -> int:
        """From the end of the latest answer until the next turn arrives: reading, thinking, or a tool's
        time."""

    def turn(self, id_: int, arrives_us: int) -> "Turn":
        """Make the next turn. Once: the conversation that goes on from there is in what it returns."""


@dataclass(slots=True)
class Turn:
    """A request, and what of its conversation is to come."""

    request: Request
    rest: Conversation | None = None


class Workload(Protocol):
    """Used for one run; the same seed gives the same turns whenever they are asked for in the same order."""

    @property
    def label(self) -> str:
        """Name and origin of the data; `synthetic` where nobody recorded it."""

    @property
    def settle_s(self) -> float:
        """How long conversations must have been started until as many are under way as ever after; 0 where
        all is over after one turn, or the data say when a conversation begins."""

    def opening(self, id_: int, arrives_us: int) -> Turn | None:
        """Make the first turn of a new conversation; None when there are no more."""
