"""Whose turn it is to speak for a sender: the newest stream's, whatever stood before.

One rule for agents at units and edges, for edges at edges, and for the subscribers of a shard. Sequences and
epochs are the newest stream's too: nothing that another stream has claimed is held against it.
"""

from collections.abc import Callable
from enum import StrEnum


class Superseded(StrEnum):
    """By whom the turn of an open stream was ended. A closed set: it is a metric's label."""

    SAME = "same"
    """A stream of the same process: the connection broke, and only one side knew."""
    ANOTHER = "another"
    """Another process: the sender was restarted, or two speak for it."""


class Turn:
    """One stream's; compared by identity."""

    __slots__ = ("_on_end", "epoch", "instead_of", "is_over", "sender")

    def __init__(self, sender: str, epoch: int, instead_of: Superseded | None) -> None:
        self.sender = sender
        self.epoch = epoch
        """Of the process that opened the stream."""
        self.instead_of = instead_of
        """How the open stream was superseded whose turn this one ended; None where there was none."""
        self.is_over = False
        """A newer stream of the sender has it, or nobody may speak for the sender: the stream is to end."""
        self._on_end: Callable[[], None] | None = None

    def on_end(self, told: Callable[[], None] | None) -> None:
        """Who is told when the turn is over: one at a time, and at most once."""
        self._on_end = told

    def end(self) -> None:
        """The stream speaks for nobody from here on."""
        if not self.is_over:
            self.is_over = True
            if self._on_end is not None:
                self._on_end()


class Turns:
    """Turns by sender, of open streams only: as many as there are senders."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    def take(self, sender: str, epoch: int) -> Turn:
        """A stream begins. The turn of the one before, if it is open, is over."""
        before = self._turns.get(sender)
        turn = self._turns[sender] = Turn(sender, epoch, None if before is None else _by(before, epoch))
        if before is not None:
            before.end()
        return turn

    def give_up(self, turn: Turn) -> None:
        """The stream has ended. Call it once for each turn that was taken."""
        if self._turns.get(turn.sender) is turn:
            del self._turns[turn.sender]

    def __contains__(self, sender: str) -> bool:
        return sender in self._turns

    def __len__(self) -> int:
        return len(self._turns)

    def senders(self) -> frozenset[str]:
        """Who has an open stream."""
        return frozenset(self._turns)


def _by(before: Turn, epoch: int) -> Superseded:
    return Superseded.SAME if before.epoch == epoch else Superseded.ANOTHER
