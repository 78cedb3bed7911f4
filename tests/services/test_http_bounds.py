"""A listener against raw clients: heads without an end, slow heads, silence, and too many connections."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from services.runtime.http_bounds import Cut, HttpBounds
from services.runtime.http_server import HttpServer
from services.runtime.ops import Health, OpsServer

HEAD = b"POST / HTTP/1.1\r\nhost: a\r\n"


@dataclass
class Listener:
    """Answers 200 once a request's body has come; remembers the bodies' sizes."""

    bodies: list[int] = field(default_factory=list)
    port: int = 0
    cuts: Counter[Cut] = field(default_factory=Counter)

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
    listener.port, listener.cuts = server.port, server.cuts
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
        assert listener.cuts == {Cut.HEAD_TOO_LARGE: 1}


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
        assert listener.cuts == {Cut.HEAD_TOO_LATE: 1}


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
    """For several times the bound, and with what it takes at once far below what the kernel could hold."""
    size = 8 << 20
    async with answering(size, HttpBounds(stalled_s=0.5)) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"content-length: 0\r\nconnection: close\r\n\r\n")
        got = 0
        while piece := await reader.read(1 << 20):
            got += len(piece)
            await asyncio.sleep(0.03)
        assert got > size
        await closed(writer)


async def test_connections_above_the_bound_are_turned_away_until_one_leaves() -> None:
    async with listening(HttpBounds(connections=2)) as listener:
        first, second = await listener.connect(), await listener.connect()
        third, writer = await listener.connect()
        turned_away = await rest(third)
        assert turned_away.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in turned_away
        assert listener.cuts == {Cut.TOO_MANY: 1}
        await closed(writer)
        await closed(first[1])
        answer = b""
        while not answer.startswith(b"HTTP/1.1 200 "):
            reader, writer = await listener.connect()
            writer.write(HEAD + b"content-length: 0\r\nconnection: close\r\n\r\n")
            answer = await rest(reader)
            await closed(writer)
        await closed(second[1])


@asynccontextmanager
async def refusing(head_s: float) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection whose first request, of 4 bytes, was answered 413 when its head had come."""

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"no"})

    server = HttpServer(app, "127.0.0.1:0", bounds=HttpBounds(head_s=head_s))
    await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(20):
            writer.write(HEAD + b"content-length: 4\r\n\r\n")
            await reader.readuntil(b"no")
            yield reader, writer
    finally:
        await closed(writer)
        await server.stop(drain_s=0.0)


async def asked_again(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(HEAD + b"content-length: 0\r\n\r\n")
    return await reader.readuntil(b"no")


async def test_the_rest_of_a_refused_request_is_no_late_head() -> None:
    async with refusing(head_s=0.2) as (reader, writer):
        for piece in (b"a", b"b", b"cd"):
            writer.write(piece)
            await asyncio.sleep(0.4)
        assert (await asked_again(reader, writer)).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("start", [HEAD, HEAD[:3], b"\r\n"])
async def test_a_head_behind_a_refused_request_must_come_in_time(start: bytes) -> None:
    async with refusing(head_s=0.2) as (reader, writer):
        writer.write(b"abcd")
        await asyncio.sleep(0.1)
        writer.write(start)
        assert await rest(reader) == b""


async def test_a_head_in_one_piece_with_a_refused_body_must_come_in_time() -> None:
    async with refusing(head_s=0.2) as (reader, writer):
        writer.write(b"abcd" + HEAD)
        assert await rest(reader) == b""


@pytest.mark.parametrize("rest_of_body", [b"ab", b"abcd"])
async def test_silence_after_a_refused_body_is_keep_alives(
    rest_of_body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.runtime.http_server.KEEP_ALIVE_S", 0.5)
    async with refusing(head_s=60.0) as (reader, writer):
        writer.write(rest_of_body)
        assert await rest(reader) == b""


async def test_what_is_cut_shows_in_the_metrics() -> None:
    other = HttpServer(None, "127.0.0.1:0")
    other.cuts[Cut.STALLED] += 3
    ops = OpsServer("127.0.0.1:0", lambda: Health(True, "ready"), CollectorRegistry(), {"public": other})
    await ops.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", ops.port)
        writer.write(b"no http\r\n\r\n")
        assert (await rest(reader)).startswith(b"HTTP/1.1 400 ")
        await closed(writer)
        async with httpx.AsyncClient(trust_env=False) as client:
            lines = (await client.get(f"http://127.0.0.1:{ops.port}/metrics")).text.splitlines()
    finally:
        await ops.stop()
    name = "kvcompass_http_cut_connections_total"
    assert {line for line in lines if line.startswith(name) and not line.endswith(" 0.0")} == {
        f'{name}{{listener="ops",reason="malformed"}} 1.0',
        f'{name}{{listener="public",reason="stalled"}} 3.0',
    }
