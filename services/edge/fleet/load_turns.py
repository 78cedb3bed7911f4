"""Whose turn it is to speak for a sender of load: the newest stream's."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self


class Turn:
    """One stream's. Use as an asynchronous context manager around the reading of the stream.

    The block is left when a newer stream takes the turn; `is_over` says so.
    """

    def __init__(self, epoch: int, instead_of: int | None) -> None:
        self.epoch = epoch
        self.instead_of = instead_of
        """Epoch of the open stream whose turn this ends; None when there is none."""
        self.is_over = False
        self._reading: asyncio.Timeout | None = None

    def end(self) -> None:
        """Another stream has it now."""
        self.is_over = True
        if self._reading is not None:
            self._reading.reschedule(asyncio.get_running_loop().time())

    async def __aenter__(self) -> Self:
        self._reading = asyncio.timeout(0 if self.is_over else None)
        await self._reading.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._reading is not None
        reading, self._reading = self._reading, None
        try:
            await reading.__aexit__(kind, error, trace)
        except TimeoutError:
            return True
        return False


class LoadTurns:
    """Turns by sender, of open streams only."""

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}

    @contextmanager
    def take(self, sender: str, epoch: int) -> Iterator[Turn]:
        """A stream's turn, from its first message to its end."""
        before = self._turns.get(sender)
        turn = self._turns[sender] = Turn(epoch, None if before is None else before.epoch)
        if before is not None:
            before.end()
        try:
            yield turn
        finally:
            if self._turns.get(sender) is turn:
                del self._turns[sender]
