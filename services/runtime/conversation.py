"""What every stream that is served does: its first message comes in time, answers are taken in time, and it
ends when its turn is over, whatever it waits for.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

from kvcompass.errors import ProtocolError
from kvcompass.roles.messages import STREAM_FIELD, Refusal
from kvcompass.roles.turns import Superseded, Turn
from services.runtime.logs import get_logger

WRITE_TIMEOUT_S: Final = 10.0
"""For one message to be taken: a chunk of 256 KiB at most, so a link of 26 KB/s.

Who has stopped reading, and whose gRPC goes on answering for it, would keep its stream for ever, and an edge
the snapshot that it began with.
"""

_Message = TypeVar("_Message")
_Answer = TypeVar("_Answer")


async def first_message(messages: AsyncIterator[_Message], timeout_s: float) -> _Message | Refusal:
    """The message that opens a stream, or the answer to what is none."""
    try:
        async with asyncio.timeout(timeout_s):
            return await anext(messages)
    except StopAsyncIteration:
        return Refusal(STREAM_FIELD, "the stream ended before its first message")
    except TimeoutError:
        return Refusal(STREAM_FIELD, f"no first message within {timeout_s:g} s")
    except ProtocolError as error:
        return Refusal(error.field, str(error))


class Answers(Generic[_Answer]):
    """The writing half of a stream that is served."""

    def __init__(
        self, write: Callable[[_Answer], Awaitable[None]], timeout_s: float = WRITE_TIMEOUT_S
    ) -> None:
        """`write` returns when there is room for the message on the way."""
        self._write = write
        self._timeout_s = timeout_s
        self._stuck = False

    async def say(self, answer: _Answer) -> bool:
        """Send a message. False: it was not taken in time, or one before it was not; the stream is to end."""
        if self._stuck:
            return False
        self._stuck = True
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._write(answer)
        except TimeoutError:
            return False
        self._stuck = False
        return True


@asynccontextmanager
async def while_it_lasts(turn: Turn) -> AsyncIterator[None]:
    """Around all that a stream does in its turn: the block is left when the turn is over."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(0 if turn.is_over else None) as lasting:
            turn.on_end(lambda: lasting.reschedule(loop.time()))
            try:
                yield
            finally:
                turn.on_end(None)
    except TimeoutError:
        if not turn.is_over:
            raise


def say_who_is_replaced(turn: Turn, what: str) -> None:
    """One line of log where a stream has taken an open one's place. `what`: speaks for the sender there."""
    if turn.instead_of is None:
        return
    log, sender = get_logger("turns"), turn.sender
    if turn.instead_of is Superseded.ANOTHER:
        log.warning(
            "an open stream was replaced by one of another process: two speak for one sender, or it was"
            " restarted",
            sender=sender,
            stream=what,
            epoch=turn.epoch,
        )
    else:
        log.info("an open stream was replaced by one of the same process", sender=sender, stream=what)
