"""What differs between versions over HTTP, beyond what the conformance suite asks of all of them."""

import asyncio
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from tests.services.mock_engine_rig import ANY_PORT, ENCODER, Rig, running

IDS = list(range(100, 200))


async def usage(rig: Rig, **fields: Any) -> Any:
    body = {"model": "m", "prompt": IDS, "max_tokens": 1, **fields}
    response = await rig.client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()["usage"]["prompt_tokens_details"]


@pytest.mark.parametrize(("profile", "nothing"), [("0.5.10", None), ("0.5.23", {"cached_tokens": 0})])
async def test_usage_of_what_was_not_cached(profile: str, nothing: object) -> None:
    async with running(event_profile=profile) as rig:
        assert await usage(rig) == nothing
        assert await usage(rig) == {"cached_tokens": 96}
    async with running(event_profile=profile, enable_cache_report=False) as rig:
        await usage(rig)
        assert await usage(rig) is None


async def test_chat_takes_token_ids_from_0_5_23_on() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "input_ids": IDS, "max_tokens": 1}
    prompts = {}
    for profile in ("0.5.10", "0.5.23"):
        async with running(event_profile=profile) as rig:
            answer = (await rig.client.post("/v1/chat/completions", json=body)).json()
            prompts[profile] = answer["usage"]["prompt_tokens"]
    assert prompts["0.5.23"] == len(IDS)
    assert prompts["0.5.10"] != len(IDS)


async def test_messages_are_tokenized_from_0_5_23_on_as_a_chat_renders_them() -> None:
    messages = [{"role": "user", "content": "hi"}]
    async with running(event_profile="0.5.23") as rig:
        told = (await rig.client.post("/tokenize", json={"messages": messages})).json()
        body = {"model": "m", "messages": messages, "max_tokens": 1}
        chat = (await rig.client.post("/v1/chat/completions", json=body)).json()
        text = (await rig.client.post("/tokenize", json={"prompt": "hi"})).json()
    assert told["count"] == len(told["tokens"]) == chat["usage"]["prompt_tokens"]
    assert text["tokens"] == ENCODER.encode("hi").tolist()
    async with running() as rig:
        assert (await rig.client.post("/tokenize", json={"messages": messages})).status_code == 400
        assert (await rig.client.post("/tokenize", json={"prompt": "hi"})).json() == text


async def test_salts_are_taken_and_ignored_in_0_5_10() -> None:
    async with running() as rig:
        keys = [{"extra_key": "a"}, {"cache_salt": "b"}, {}]
        assert [await rig.cached(IDS, **key) for key in keys] == [0, 96, 96]


async def test_extra_key_is_a_salt_in_0_5_11_and_refused_later() -> None:
    async with running(event_profile="0.5.11") as rig:
        assert [await rig.cached(IDS, extra_key=key) for key in ("a", "b", "a")] == [0, 0, 96]
    async with running(event_profile="0.5.23") as rig:
        assert (await rig.generate(IDS, extra_key="a")).status_code == 400


async def test_adapters_must_be_known_and_are_named_in_maps() -> None:
    async with (
        running(event_profile="0.5.23", lora_names=("tuned",)) as rig,
        rig.listening() as engine,
    ):
        assert (await rig.generate(IDS, lora_path="other")).status_code == 400
        await rig.generate(IDS)
        assert await rig.cached(IDS, lora_path="tuned", cache_salt="s") == 0
        events = await engine.hear(lambda events: len(events) >= 2)
    plain, tuned = events
    assert {"lora_name", "cache_salt"}.isdisjoint(plain.fields)
    assert (tuned.fields["lora_name"], tuned.fields["cache_salt"]) == ("tuned", "s")
    assert set(plain.hashes).isdisjoint(tuned.hashes)


@pytest.mark.parametrize(
    ("profile", "told"),
    [
        ("0.5.10", {("BlockStored", "GPU"), ("BlockRemoved", "GPU")}),
        (
            "0.5.11",
            {
                ("BlockStored", "GPU"),
                ("BlockStored", "CPU_PINNED"),
                ("BlockRemoved", "GPU"),
                ("BlockRemoved", "CPU_PINNED"),
            },
        ),
    ],
)
async def test_a_host_tier_is_told_from_0_5_11_on(profile: str, told: set[tuple[str, str]]) -> None:
    async with (
        running(event_profile=profile, cache_tokens=224, host_cache_tokens=448) as rig,
        rig.listening() as engine,
    ):
        prompts = [[1_000 * n + i for i in range(100)] for n in range(8)]
        for ids in prompts:
            await rig.generate(ids)
            await engine.hear_stored(ids)
        await engine.settle()
        assert {(event.kind, event.medium) for event in engine.events()} == told
        meta = (await rig.generate(prompts[5])).json()["meta_info"]
    assert meta["cached_tokens"] == 96
    details = meta["cached_tokens_details"]
    assert details["host"] > 0
    assert details["device"] + details["host"] == 96


async def test_the_load_is_published_from_0_5_23_on() -> None:
    changes = {"event_profile": "0.5.23", "load_publish_endpoint": ANY_PORT, "fault_switches": True}
    context = zmq.asyncio.Context()
    try:
        async with running(**changes) as rig:
            rank = rig.server.ranks.all[0]
            assert rank.load_publisher is not None
            described = (await rig.client.get("/server_info")).json()["kv_events"]
            port = int(rank.load_publisher.endpoint.rpartition(":")[2])
            assert (described["load_endpoint_port_base"], described["load_topic"]) == (port, "load")
            socket = context.socket(zmq.SUB)
            socket.setsockopt(zmq.SUBSCRIBE, b"load")
            socket.connect(rank.load_publisher.endpoint)
            async with asyncio.timeout(20):
                topic, number, payload = await socket.recv_multipart()
                tag, running_now, waiting, *_ = msgspec.msgpack.decode(payload)
                assert (topic, tag, running_now, waiting) == (b"load", "LoadStat", 0, 0)
                await rig.generate(IDS)
                while msgspec.msgpack.decode(payload)[9] != len(IDS):
                    _, later, payload = await socket.recv_multipart()
            stat = msgspec.msgpack.decode(payload)
            assert int.from_bytes(later, "big") > int.from_bytes(number, "big")
            assert (stat[4], stat[5]) == (rank.load().model.capacity_tokens, 0)
            assert stat[10] > 0
            await rig.faults(silence_load=True)
            while await socket.poll(100):
                await socket.recv_multipart()
            assert not await socket.poll(1_200), "not even a heartbeat"
    finally:
        context.destroy(linger=0)


async def test_a_duplicate_id_is_refused_and_harms_nobody() -> None:
    async with running(time_scale=100.0) as rig:
        first = asyncio.create_task(rig.generate(IDS, rid="same"))
        await rig.until_running(1)
        second = await rig.generate(IDS, rid="same")
        assert "in flight" in second.json()["message"]
        assert not first.done()
        await rig.client.post("/abort_request", json={"rid": "same"})
        assert "aborted" in (await first).json()["message"]
