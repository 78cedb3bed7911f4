"""How a decode engine learns that the prefill engine of its pair is done with a request.

Stands for the engines' bootstrap server and their transfer of KV: one JSON line asks for a room, one answers.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from services.runtime.settings import SettingsError

ROOMS = 1_024
"""Rooms known at once, asked for or done; beyond it the oldest are forgotten, and who waits there fails."""
LINE_BYTES = 1_024


class Transfer(msgspec.Struct, frozen=True):
    """What a prefill engine hands over. Tokens that it found in its cache, in VRAM and in DRAM."""

    cached_tokens: int = 0
    host_tokens: int = 0
    failed: bool = False
    """There is nothing to hand over: the request ended before its prefill."""


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line from a decode engine."""

    room: int


_ENCODER = msgspec.json.Encoder()
_QUESTION = msgspec.json.Decoder(Question)
_TRANSFER = msgspec.json.Decoder(Transfer)


class TransferError(Exception):
    """A prefill engine did not hand over in time, or not at all."""


class Rooms:
    """Requests that both halves of a pair know under one number, until the decode half has asked."""

    def __init__(self, limit: int = ROOMS) -> None:
        self._limit = limit
        self._rooms: dict[int, asyncio.Future[Transfer]] = {}

    def __len__(self) -> int:
        """Rooms known now."""
        return len(self._rooms)

    def settle(self, room: int, transfer: Transfer) -> None:
        """The prefill half is done with a room. Only the first word counts."""
        future = self._future(room)
        if not future.done():
            future.set_result(transfer)

    async def transfer(self, room: int) -> Transfer:
        """Wait for the prefill half, then forget the room."""
        future = self._future(room)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if future.cancelled():
                return Transfer(failed=True)
            raise
        finally:
            if self._rooms.get(room) is future:
                del self._rooms[room]

    def _future(self, room: int) -> asyncio.Future[Transfer]:
        future = self._rooms.get(room)
        if future is None:
            while len(self._rooms) >= self._limit:
                self._rooms.pop(next(iter(self._rooms))).cancel()
            future = self._rooms[room] = asyncio.get_running_loop().create_future()
        return future


class TransferServer:
    """The prefill half: answers decode engines from `rooms`, at most ROOMS of them at once."""

    def __init__(
        self, rooms: Rooms, timeout_s: float, until_answering: Callable[[], Awaitable[None]]
    ) -> None:
        """`until_answering` is awaited before an answer, and counts in `timeout_s`."""
        self._rooms = rooms
        self._timeout_s = timeout_s
        self._until_answering = until_answering
        self._server: asyncio.Server | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Returns once it listens. Errors: SettingsError."""
        try:
            self._server = await asyncio.start_server(self._accept, host, port, limit=LINE_BYTES)
        except OSError as error:
            message = f"cannot listen on {host}:{port}: {error.strerror}"
            raise SettingsError(message, field="bootstrap_port") from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and hang up."""
        if self._server is None:
            return
        self._server.close()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._answering) >= ROOMS:
            writer.close()
            return
        task = asyncio.create_task(self._answer(reader, writer), name="kv transfer")
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            # What is no question is not answered; a timeout and a lost peer end the same way.
            with suppress(TimeoutError, OSError, ValueError, msgspec.DecodeError):
                async with asyncio.timeout(self._timeout_s):
                    question = _QUESTION.decode(await reader.readline())
                    transfer = await self._rooms.transfer(question.room)
                    await self._until_answering()
                    writer.write(_ENCODER.encode(transfer) + b"\n")
                    await writer.drain()
        finally:
            writer.close()


async def ask_for_transfer(host: str, port: int, room: int, timeout_s: float) -> Transfer:
    """The decode half: wait until the prefill engine at host:port is done with a room.

    Errors: TransferError.
    """
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port, limit=LINE_BYTES)
            try:
                writer.write(_ENCODER.encode(Question(room)) + b"\n")
                await writer.drain()
                transfer = _TRANSFER.decode(await reader.readline())
            finally:
                writer.close()
    except (TimeoutError, OSError, ValueError, msgspec.DecodeError) as error:
        raise TransferError(str(error) or type(error).__name__) from error
    if transfer.failed:
        raise TransferError("the prefill engine has nothing to hand over")
    return transfer
