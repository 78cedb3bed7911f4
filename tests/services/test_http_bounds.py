"""A listener against raw clients: heads without an end, slow heads, silence, and too many connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from services.runtime.http_bounds import HttpBounds
from services.runtime.http_server import HttpServer

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\n"


@dataclass
class Listener:
    """Answers 200 once a request's body has come; remembers the bodies' sizes."""

    bodies: list[int] = field(default_factory=list)
    port: int = 0

    async def app(self, _scope: Any, receive: Any, send: Any) -> None:
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            size, more = size + len(message["body"]), message["more_body"]
        self.bodies.append(size)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


@asynccontextmanager
async def listening(bounds: HttpBounds) -> AsyncIterator[Listener]:
    listener = Listener()
    server = HttpServer(listener.app, "127.0.0.1:0", bounds=bounds)
    await server.start()
    listener.port = server.port
    try:
        async with asyncio.timeout(20):
            yield listener
    finally:
        await server.stop(drain_s=0.0)


async def flood(writer: asyncio.StreamWriter, start: bytes, piece: bytes, pieces: int) -> None:
    """Send `start`, then `piece` again and again, until all is sent or the other side has closed."""
    try:
        writer.write(start)
        for _ in range(pieces):
            writer.write(piece)
            await writer.drain()
    except OSError:
        pass


async def rest(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes; a reset counts as closing."""
    got = b""
    try:
        while piece := await reader.read(65_536):
            got += piece
    except OSError:
        pass
    return got


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (HEAD + b"x: ", b"a" * 4_096),
        (b"GET /", b"a" * 4_096),
        (HEAD, b"x: " + b"a" * 100 + b"\r\n"),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1;", b"a" * 4_096),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\nx: ", b"a" * 4_096),
        (HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n", b"x: " + b"a" * 100 + b"\r\n"),
    ],
    ids=["one header", "the target", "many headers", "a chunk's extension", "one trailer", "many trailers"],
)
async def test_what_has_no_end_is_cut_off(start: bytes, piece: bytes) -> None:
    """Each client is ready to send 16 MiB; it is closed long before."""
    async with listening(HttpBounds(head_bytes=8_192)) as listener:
        reader, writer = await listener.connect()
        flooding = asyncio.create_task(flood(writer, start, piece, (16 << 20) // len(piece)))
        answer = await rest(reader)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        await flooding
        await closed(writer)
        assert listener.bodies == []


async def test_a_large_body_is_no_head() -> None:
    async with listening(HttpBounds(head_bytes=8_192)) as listener:
        reader, writer = await listener.connect()
        for size in (1_000_000, 3_000_000):
            writer.write(HEAD + b"content-length: %d\r\n\r\n" % size + bytes(size))
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        await closed(writer)
        assert listener.bodies == [1_000_000, 3_000_000]


async def test_chunks_of_one_byte_are_no_head() -> None:
    async with listening(HttpBounds(head_bytes=1_024)) as listener:
        reader, writer = await listener.connect()
        writer.write(HEAD + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(20):
            writer.write(b"1\r\na\r\n" * 100)
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        await closed(writer)
        assert listener.bodies == [2_000]


@pytest.mark.parametrize(
    ("before", "start"), [(False, b""), (False, HEAD), (False, b"\r\n"), (True, HEAD), (True, b"\r\n")]
)
async def test_a_head_that_does_not_come_ends_the_connection(before: bool, start: bytes) -> None:
    """Of a first request or a second. (Silence after an answer is keep-alive, and has its own timeout.)"""
    async with listening(HttpBounds(head_s=0.2)) as listener:
        reader, writer = await listener.connect()
        if before:
            writer.write(HEAD + b"content-length: 0\r\n\r\n")
            await reader.readuntil(b"ok")
        writer.write(start)
        assert await rest(reader) == b""
        await closed(writer)


async def test_a_client_that_trickles_its_head_does_not_win_time() -> None:
    async with listening(HttpBounds(head_s=0.3)) as listener:
        reader, writer = await listener.connect()
        ended = asyncio.create_task(rest(reader))
        writer.write(HEAD)
        while not ended.done():
            writer.write(b"x: a\r\n")
            await asyncio.sleep(0.02)
        assert await ended == b""
        await closed(writer)


async def test_an_answer_may_take_longer_than_a_head() -> None:
    async with listening(HttpBounds(head_s=0.1)) as listener:
        reader, writer = await listener.connect()
        writer.write(HEAD + b"content-length: 2\r\n\r\na")
        await asyncio.sleep(0.4)
        writer.write(b"b")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 ")
        await closed(writer)


@asynccontextmanager
async def answering(size: int, bounds: HttpBounds) -> AsyncIterator[tuple[int, asyncio.Event]]:
    """A port that answers anything with `size` bytes, and the event that it could, or was cut."""
    ended = asyncio.Event()

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            await send({"type": "http.response.body", "body": bytes(size), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            ended.set()

    server = HttpServer(app, "127.0.0.1:0", bounds=bounds)
    await server.start()
    try:
        async with asyncio.timeout(20):
            yield server.port, ended
            await server.stop(drain_s=60.0)
    finally:
        await server.stop(drain_s=0.0)


async def test_a_client_that_takes_nothing_is_cut_also_after_its_answer() -> None:
    async with answering(16 << 20, HttpBounds(stalled_s=0.2)) as (port, ended):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()
        writer.write(HEAD + b"content-length: 0\r\n\r\n")
        await ended.wait()  # and the stop that follows does not wait for it
    await closed(writer)


async def test_a_client_that_reads_slowly_stays() -> None:
    size = 16 << 20
    async with answering(size, HttpBounds(stalled_s=0.3)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"content-length: 0\r\nconnection: close\r\n\r\n")
        got = 0
        while piece := await reader.read(1 << 20):
            got += len(piece)
            await asyncio.sleep(0.05)
        assert got > size
        await closed(writer)


async def test_connections_above_the_bound_are_turned_away_until_one_leaves() -> None:
    async with listening(HttpBounds(connections=2)) as listener:
        first, second = await listener.connect(), await listener.connect()
        third, writer = await listener.connect()
        assert (await rest(third)).startswith(b"HTTP/1.1 503 ")
        await closed(writer)
        await closed(first[1])
        answer = b""
        while not answer.startswith(b"HTTP/1.1 200 "):
            reader, writer = await listener.connect()
            writer.write(HEAD + b"content-length: 0\r\nconnection: close\r\n\r\n")
            answer = await rest(reader)
            await closed(writer)
        await closed(second[1])
