"""Messages are read as they come, none is slept through, and silence ends."""

import asyncio
import random
import threading
import time
from collections.abc import Iterator

import pytest
import zmq
import zmq.asyncio

from services.worker_agent.incoming import Incoming, plain_socket

MESSAGES = 3_000


@pytest.fixture
def context() -> Iterator[zmq.asyncio.Context]:
    made = zmq.asyncio.Context()
    yield made
    made.destroy(linger=0)


def sender(port: int, seed: int) -> None:
    """From another thread, in bursts and alone: some come while the reader looks, some while it waits."""
    chance = random.Random(seed)
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.connect(f"tcp://127.0.0.1:{port}")
        for number in range(MESSAGES):
            socket.send(number.to_bytes(4, "big"))
            if chance.random() < 0.1:
                time.sleep(chance.choice((0.0, 0.0001, 0.001)))


@pytest.mark.parametrize("seed", range(3))
async def test_every_message_comes_in_order_however_they_fall(
    seed: int, context: zmq.asyncio.Context
) -> None:
    socket = plain_socket(context, zmq.PULL)
    incoming = Incoming(socket)
    thread = threading.Thread(target=sender, args=(socket.bind_to_random_port("tcp://127.0.0.1"), seed))
    thread.start()
    chance = random.Random(seed)
    try:
        for number in range(MESSAGES):
            frames = await incoming.next(5_000)
            assert frames is not None, f"slept through message {number}"
            assert int.from_bytes(frames[0], "big") == number
            if chance.random() < 0.02:
                await asyncio.sleep(0.001)
        assert await incoming.next(20) is None
        assert not incoming.waits
    finally:
        incoming.close()
        await asyncio.to_thread(thread.join)


async def test_silence_ends_and_what_comes_after_it_is_read(context: zmq.asyncio.Context) -> None:
    incoming, peer = Incoming(plain_socket(context, zmq.PULL)), context.socket(zmq.PUSH)
    peer.connect(f"tcp://127.0.0.1:{incoming.socket.bind_to_random_port('tcp://127.0.0.1')}")
    assert incoming.take() is None
    for number in range(3):
        assert await incoming.next(20) is None
        await peer.send(bytes([number]))
        assert await incoming.next(5_000) == [bytes([number])]
    incoming.close()
    incoming.close()
    peer.close(linger=0)


async def test_a_descriptor_that_is_used_again_belongs_to_the_new_socket(
    context: zmq.asyncio.Context,
) -> None:
    for number in range(5):
        incoming, peer = Incoming(plain_socket(context, zmq.PULL)), context.socket(zmq.PUSH)
        peer.connect(f"tcp://127.0.0.1:{incoming.socket.bind_to_random_port('tcp://127.0.0.1')}")
        coming = asyncio.create_task(incoming.next(5_000))
        await asyncio.sleep(0.01)
        await peer.send(bytes([number]))
        assert await coming == [bytes([number])]
        incoming.close()
        peer.close(linger=0)
