"""The double's cache events: the bytes of a real SGLang 0.5.10, its sequence numbers and its replay."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import numpy as np
import pytest
import zmq
import zmq.asyncio

from kvcompass.engine_events import BlockRemoved, EngineEvent
from kvcompass.engine_model.block_cache import BlockCache
from kvcompass.engine_model.token_chain import TokenChain
from services.mock_sglang.events.publisher import Delivery, EventPublisher, always_sent
from services.mock_sglang.profiles import PROFILES, ProfileName
from services.mock_sglang.profiles.array_events import encode_batch
from services.runtime.settings import SettingsError
from tests.services.mock_engine_rig import ANY_PORT, PATIENCE_S, running

# Batches 0 to 2 of a recorded SGLang 0.5.10 with page size 4: the start, the prompt 10..17 after its
# prefill, and the block that its answer filled.
GOLDEN = (
    "93cb41dac324ca2a724a9191b0416c6c426c6f636b73436c656172656400",
    "93cb41dac324cb8adfe19297ab426c6f636b53746f72656491cf4b55f2919bb18010c0940a0b0c0d04c0a347505597ab"
    "426c6f636b53746f72656491d3ffcf1f467b943666cf4b55f2919bb18010940e0f101104c0a347505500",
    "93cb41dac324cb8e5ed69197ab426c6f636b53746f72656491cf13a1f41f54c80547d3ffcf1f467b943666941213cc9c"
    "ccfc04c0a347505500",
)


def test_the_same_tokens_give_the_bytes_of_a_real_engine() -> None:
    cache = BlockCache(page_size=4, capacity_blocks=10)
    batches: list[Sequence[EngineEvent]] = [cache.take_events()]
    chain = TokenChain(np.arange(10, 18, dtype=np.int32), 4)
    holding = cache.open(chain, 1, 4, 0)
    assert holding is not None
    cache.store(holding, chain, 0)
    batches.append(cache.take_events())
    chain.extend(np.array([18, 19, 156, 252], dtype=np.int32))
    cache.store(holding, chain, 0)
    batches.append(cache.take_events())
    for events, golden in zip(batches, GOLDEN, strict=True):
        timestamp = msgspec.msgpack.decode(bytes.fromhex(golden))[0]
        assert encode_batch(events, timestamp, 0).hex() == golden


def test_a_removal_names_its_hash_and_medium() -> None:
    payload = encode_batch([BlockRemoved(hashes=(-5,), medium="GPU")], 1.5, 3)
    assert msgspec.msgpack.decode(payload) == [1.5, [["BlockRemoved", [-5], "GPU"]], 3]


@asynccontextmanager
async def publisher(
    ring_batches: int = 10,
    version: ProfileName = "0.5.10",
    delivery: Callable[[], Delivery] = always_sent,
) -> AsyncIterator[EventPublisher]:
    made = EventPublisher(PROFILES[version], ANY_PORT, ANY_PORT, "kv-events", ring_batches, delivery)
    serving = asyncio.create_task(made.serve_replay())
    yield made
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    made.close()


@asynccontextmanager
async def socket(kind: int, endpoint: str) -> AsyncIterator[Any]:
    context = zmq.asyncio.Context()
    made = context.socket(kind)
    made.connect(endpoint)
    if kind == zmq.SUB:
        made.setsockopt(zmq.SUBSCRIBE, b"kv-events")
    yield made
    context.destroy(linger=0)


async def replayed(dealer: Any, start: int) -> list[tuple[int, bytes]]:
    await dealer.send_multipart([b"", start.to_bytes(8, "big")])
    batches = []
    async with asyncio.timeout(10):
        while True:
            *_, sequence, payload = await dealer.recv_multipart()
            if sequence == b"\xff" * 8:
                assert payload == b""
                return batches
            batches.append((int.from_bytes(sequence, "big"), payload))


@pytest.mark.parametrize("version", list(PROFILES))
async def test_replay_starts_where_asked_and_ends_with_its_marker(version: ProfileName) -> None:
    async with publisher(version=version) as source, socket(zmq.DEALER, source.replay_endpoint) as dealer:
        assert await replayed(dealer, 0) == []
        for i in range(4):
            source.publish(b"%d" % i)
        assert await replayed(dealer, 0) == [(0, b"0"), (1, b"1"), (2, b"2"), (3, b"3")]
        assert await replayed(dealer, 3) == [(3, b"3")]
        assert await replayed(dealer, 9) == []


async def test_the_ring_forgets_the_oldest() -> None:
    async with publisher(ring_batches=2) as source, socket(zmq.DEALER, source.replay_endpoint) as dealer:
        for i in range(5):
            source.publish(b"%d" % i)
        assert [sequence for sequence, _ in await replayed(dealer, 0)] == [3, 4]


async def test_a_lost_batch_has_a_number_and_a_replay_has_it_unless_it_is_forgotten() -> None:
    fates = [Delivery.SENT, Delivery.UNSENT, Delivery.FORGOTTEN, Delivery.SENT]
    async with (
        publisher(delivery=iter(fates).__next__) as source,
        socket(zmq.DEALER, source.replay_endpoint) as dealer,
    ):
        for i in range(4):
            source.publish(b"%d" % i)
        assert await replayed(dealer, 0) == [(0, b"0"), (1, b"1"), (3, b"3")]


async def test_a_ring_shrinks_and_a_restart_empties_it() -> None:
    async with publisher() as source, socket(zmq.DEALER, source.replay_endpoint) as dealer:
        for i in range(5):
            source.publish(b"%d" % i)
        source.keep(2)
        assert [sequence for sequence, _ in await replayed(dealer, 0)] == [3, 4]
        source.restart()
        source.publish(b"new")
        assert await replayed(dealer, 0) == [(0, b"new")]


async def test_a_malformed_replay_request_harms_nobody() -> None:
    async with publisher() as source, socket(zmq.DEALER, source.replay_endpoint) as dealer:
        source.publish(b"x")
        await dealer.send_multipart([b"what"])
        await dealer.send_multipart([b"", b"short"])
        assert await replayed(dealer, 0) == [(0, b"x")]


async def test_a_taken_endpoint_is_named() -> None:
    async with publisher() as source:
        with pytest.raises(SettingsError, match="cannot listen") as caught:
            EventPublisher(PROFILES["0.5.10"], source.endpoint, "", "kv-events", 1)
    assert caught.value.field == "event_endpoint"


async def test_requests_show_up_as_events_live_and_in_replay() -> None:
    async with (
        running(page_size=4, cache_tokens=64) as rig,
        socket(zmq.SUB, rig.server.event_endpoint) as subscriber,
        socket(zmq.DEALER, rig.server.replay_endpoint) as dealer,
    ):
        # A subscription takes effect some time after it is made: ask until something arrives.
        received: list[list[bytes]] = []
        first, other = list(range(20)), list(range(100, 160))
        async with asyncio.timeout(PATIENCE_S):
            while not received:
                await rig.generate(first)
                await rig.client.post("/flush_cache")
                while await subscriber.poll(50):
                    received.append(await subscriber.recv_multipart())
        await rig.generate(first)
        await rig.generate(other)
        async with asyncio.timeout(PATIENCE_S):
            while b"BlockRemoved" not in received[-1][2]:
                received.append(await subscriber.recv_multipart())
        history = await replayed(dealer, 0)
    assert {topic for topic, _, _ in received} == {b"kv-events"}
    live = [(int.from_bytes(sequence, "big"), payload) for _, sequence, payload in received]
    assert live == history[-len(live) :]
    assert [sequence for sequence, _ in history] == list(range(len(history)))
    decoded = [msgspec.msgpack.decode(payload) for _, payload in history]
    assert decoded[0][1] == [["AllBlocksCleared"]]
    *_, last = decoded
    kinds = [event[0] for event in last[1]]
    assert kinds == ["BlockRemoved"] * 4 + ["BlockStored"] * 15
    stored = [event for event in last[1] if event[0] == "BlockStored"]
    assert [token for event in stored for token in event[3]] == other
    assert [event[2] for event in stored] == [None, *[event[1][0] for event in stored[:-1]]]
