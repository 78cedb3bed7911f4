"""Sockets to what an engine publishes, at every kind of address."""

import asyncio
import socket as plain_sockets
from contextlib import aclosing

import msgspec
import pytest
import zmq
import zmq.asyncio

from services.runtime.epoch import now_us
from services.worker_agent.event_source import LiveEvents, replay
from services.worker_agent.load_sources.load_socket import LoadSocket


def has_ipv6() -> bool:
    try:
        with plain_sockets.socket(plain_sockets.AF_INET6) as trial:
            trial.bind(("::1", 0))
    except OSError:
        return False
    return True


HOSTS = [
    "127.0.0.1",
    pytest.param("[::1]", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here")),
]


@pytest.mark.parametrize("host", HOSTS)
async def test_events_replays_and_loads_come_from_an_address_of_either_kind(host: str) -> None:
    context = zmq.asyncio.Context()
    publisher, router, loads = (context.socket(kind) for kind in (zmq.PUB, zmq.ROUTER, zmq.XPUB))
    for each in (publisher, router, loads):
        each.setsockopt(zmq.IPV6, 1)
    ports = [each.bind_to_random_port(f"tcp://{host}") for each in (publisher, router, loads)]
    events_at, replay_at, loads_at = (f"tcp://{host}:{port}" for port in ports)
    load_socket = LoadSocket(context, loads_at, now_us, 3_000)
    try:
        async with asyncio.timeout(8), LiveEvents(context, events_at) as live:
            await live.connect(3.0)
            batches = replay(context, replay_at, 0, 3.0)
            async with aclosing(batches):
                first = asyncio.ensure_future(anext(batches))
                client, *_ = await router.recv_multipart()
                await router.send_multipart([client, b"", (7).to_bytes(8, "big"), b"batch"])
                assert await first == (7, b"batch")
            await loads.recv()
            await loads.send_multipart([b"load", bytes(8), msgspec.msgpack.encode(["LoadStat", 3, 0, 0, 0])])
            while (published := load_socket.newest()) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert published.load.running == 3
    finally:
        load_socket.close()
        context.destroy(linger=0)
