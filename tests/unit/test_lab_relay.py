"""The relay's laws: bytes take the wire's time, keep order, are bounded; a partition loses nothing."""

import asyncio
import random
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kvcompass.wan import LINK_FIELDS, Link, WanError
from lab.relay.connection import reset
from lab.relay.control import ControlApp, Message
from lab.relay.lane import LANE_BYTES
from lab.relay.network import Network, UnknownWireError
from lab.relay.settings import LinkSettings, WireSettings
from lab.relay.wire import Wire

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@asynccontextmanager
async def relayed(
    handler: Handler, *, out_ms: float = 40.0, back_ms: float = 20.0, jitter_ms: float = 0.0
) -> AsyncIterator[tuple[Network, int]]:
    """A server behind a relay; yields the network and the port to dial."""
    server = await asyncio.start_server(handler, "127.0.0.1", 0)
    listen = free_address()
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    network = Network(
        [WireSettings("us", "eu", out_ms, jitter_ms), WireSettings("eu", "us", back_ms, jitter_ms)],
        [LinkSettings(listen, target, "us", "eu")],
        random_seed=1,
    )
    await network.start()
    try:
        yield network, int(listen.rpartition(":")[2])
    finally:
        await network.stop()
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


async def test_a_round_trip_takes_both_ways_and_the_first_one_the_handshake_too() -> None:
    async with relayed(echo) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        took: list[float] = []
        # A busy machine is late, but not always; bytes never arrive early.
        while len(took) < 2 or (took[-1] >= 118.0 and len(took) < 50):
            started = time.monotonic()
            writer.write(b"ping")
            assert await reader.readexactly(4) == b"ping"
            took.append(1e3 * (time.monotonic() - started))
        writer.close()
    assert took[0] >= 118.0
    assert all(each >= 58.0 for each in took)
    assert took[-1] < 118.0, "every round trip takes as long as the first one"


async def test_order_is_kept_under_jitter() -> None:
    async with relayed(echo, out_ms=5.0, back_ms=5.0, jitter_ms=5.0) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = b"".join(index.to_bytes(4, "big") for index in range(2_000))
        for start in range(0, len(sent), 400):
            writer.write(sent[start : start + 400])
            await asyncio.sleep(0.001)
        assert await asyncio.wait_for(reader.readexactly(len(sent)), 10.0) == sent
        writer.close()


async def test_half_close_leaves_the_other_direction_open() -> None:
    async def answer_after_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        everything = await reader.read()
        writer.write(b"got %d" % len(everything))
        await writer.drain()
        writer.close()

    async with relayed(answer_after_end, out_ms=5.0, back_ms=5.0) as (network, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 1_000)
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), 5.0) == b"got 1000"
        writer.close()
        await until(lambda: network.state()["connections"] == 0)


async def test_a_partition_holds_bytes_and_healing_delivers_them() -> None:
    async with relayed(echo, out_ms=5.0, back_ms=5.0) as (network, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"before")
        assert await asyncio.wait_for(reader.readexactly(6), 5.0) == b"before"
        network.cut("us", "eu")
        writer.write(b"during")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(6), 0.2)
        network.heal("us", "eu")
        assert await asyncio.wait_for(reader.readexactly(6), 5.0) == b"during"
        writer.close()


async def test_no_connection_is_opened_through_a_partition() -> None:
    arrived = asyncio.Event()

    async def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        writer.close()

    async with relayed(note, out_ms=1.0, back_ms=1.0) as (network, port):
        network.cut("eu", "us")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.sleep(0.1)
        assert not arrived.is_set()
        network.heal("eu", "us")
        await asyncio.wait_for(arrived.wait(), 5.0)
        writer.close()


@pytest.mark.parametrize("aborts", [False, True])
async def test_who_hangs_up_in_a_partition_is_forgotten_before_it_heals(aborts: bool) -> None:
    async with relayed(echo, out_ms=1.0, back_ms=1.0) as (network, port):
        network.cut("us", "eu")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        await until(lambda: network.state()["connections"] == 1)
        if aborts:
            reset(writer.transport)
        else:
            writer.close()
        await until(lambda: network.state()["connections"] == 0)
        network.heal("us", "eu")


async def test_connections_beyond_the_bound_are_reset_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.relay.network.MAX_CONNECTIONS", 0)
    async with relayed(echo) as (network, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 5.0)
        writer.close()
        assert network.state()["refused_connections"] == 1


async def test_a_slow_reader_pauses_the_sender() -> None:
    release = asyncio.Event()
    received = 0

    async def stall(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        await release.wait()
        while data := await reader.read(1 << 20):
            received += len(data)
        writer.close()

    total = 4 * LANE_BYTES
    async with relayed(stall, out_ms=1.0, back_ms=1.0) as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send() -> None:
            for _ in range(total // (1 << 20)):
                writer.write(b"x" * (1 << 20))
                await writer.drain()
            writer.write_eof()

        sending = asyncio.create_task(send())
        done, _ = await asyncio.wait([sending], timeout=0.5)
        assert not done, "the sender was never paused"
        release.set()
        await asyncio.wait_for(sending, 10.0)
        await asyncio.wait_for(reader.read(), 10.0)
        writer.close()
    assert received == total


async def test_a_refusing_target_resets_the_client() -> None:
    listen, dead = free_address(), free_address()
    network = Network(
        [WireSettings("us", "eu", 1.0), WireSettings("eu", "us", 1.0)],
        [LinkSettings(listen, dead, "us", "eu")],
        random_seed=1,
    )
    await network.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(listen.rpartition(":")[2]))
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.read(1), 5.0)
    writer.close()
    await until(lambda: network.state()["connections"] == 0)
    await network.stop()


async def test_a_rate_makes_bytes_wait_for_one_another() -> None:
    wire = Wire(Link(10.0, rate=8.0), random.Random(1))  # a byte a microsecond
    assert wire.carry(5_000, now=1.0, sent_at=1.0) == pytest.approx(1.015)
    assert wire.carry(5_000, now=1.0, sent_at=1.0) == pytest.approx(1.020), "another connection's"
    assert wire.carry(5_000, now=1.5, sent_at=2.0) == pytest.approx(2.015), "what leaves later waits for none"
    assert wire.carry(5_000, now=1.5, sent_at=1.5) == pytest.approx(1.520)


async def test_a_changed_wire_holds_for_the_next_bytes() -> None:
    async with relayed(echo, out_ms=10_000.0, back_ms=5.0) as (network, port):
        network.change("us", "eu", {"one_way_ms": 5.0})
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"ping")
        assert await asyncio.wait_for(reader.readexactly(4), 5.0) == b"ping"
        network.change("us", "eu", {"partition": True})
        assert "'partition': True" in str(network.state()["wires"])
        network.change("us", "eu", {"partition": False})
        writer.close()


@pytest.mark.parametrize("fault", ["loss", "duplicate", "reorder"])
async def test_what_cannot_be_done_to_a_connection_is_refused_with_the_reason(fault: str) -> None:
    wire = WireSettings("us", "eu", 10.0, **{fault: 0.1})
    with pytest.raises(WanError, match=rf"wires\.us\.eu\.{fault}: the relay carries connections"):
        Network([wire], [], random_seed=1)
    async with relayed(echo) as (network, _):
        with pytest.raises(WanError, match=rf"us\.eu\.{fault}"):
            network.change("us", "eu", {fault: 0.1})


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "says"),
    [
        ("PATCH", "/link/us/eu", b'{"one_way_ms": 7}', 200, '"one_way_ms":7.0'),
        ("PATCH", "/link/us/eu", b'{"one_way": 7}', 400, "did you mean one_way_ms"),
        ("PATCH", "/link/us/eu", b'{"loss": 0.1}', 400, "the relay carries connections"),
        ("PATCH", "/link/us/eu", b"7", 400, "Expected `object`"),
        ("PATCH", "/link/us/mars", b'{"one_way_ms": 7}', 404, "no wire from"),
        ("PUT", "/partition/us/eu", b"", 200, '"partition":true'),
        ("DELETE", "/partition/us/mars", b"", 404, "no wire from"),
        ("GET", "/link/us/eu", b"", 404, "PATCH /link"),
    ],
)
async def test_the_control_answers_in_words(
    method: str, path: str, body: bytes, status: int, says: str
) -> None:
    async with relayed(echo) as (network, _):
        pieces = [{"body": body[:3], "more_body": True}, {"body": body[3:]}]
        sent: list[Message] = []

        async def receive() -> Message:
            return pieces.pop(0)

        async def send(message: Message) -> None:
            sent.append(message)

        await ControlApp(network)({"method": method, "path": path}, receive, send)
    assert sent[0]["status"] == status
    assert says in sent[1]["body"].decode().replace('\\"', '"')


def test_a_wire_takes_every_figure_of_a_link_and_no_other() -> None:
    assert WireSettings.__struct_fields__ == ("origin", "destination", *LINK_FIELDS)
    assert WireSettings("us", "eu", 7.0).link() == Link(7.0)


def test_a_link_between_regions_without_a_wire_is_refused() -> None:
    with pytest.raises(UnknownWireError, match="'us' to 'mars'"):
        Network([], [LinkSettings("127.0.0.1:1", "127.0.0.1:2", "us", "mars")], random_seed=1)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5.0):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
