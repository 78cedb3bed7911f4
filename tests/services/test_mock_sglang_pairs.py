"""Prefill-decode pairs: one request, two engines, one room."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from services.mock_sglang.faults import FaultSwitches
from services.mock_sglang.ranks.transfer import (
    Rooms,
    Transfer,
    TransferError,
    TransferServer,
    ask_for_transfer,
)
from tests.services.mock_engine_rig import Rig, running, until

IDS = list(range(100, 200))
ROOM = 2**62 + 12_345


@asynccontextmanager
async def pair(**changes: Any) -> AsyncIterator[tuple[Rig, Rig, dict[str, Any]]]:
    """A prefill engine, a decode engine, and what requests must say of the former."""
    async with (
        running(role="prefill", bootstrap_port=0, **changes) as prefill,
        running(role="decode", **changes) as decode,
    ):
        port = prefill.server.bootstrap_port
        assert port is not None
        yield prefill, decode, {"bootstrap_host": "127.0.0.1", "bootstrap_port": port}


async def both(
    prefill: Rig, decode: Rig, ids: list[int], tokens: int, **fields: Any
) -> tuple[httpx.Response, httpx.Response]:
    return await asyncio.gather(
        prefill.generate(ids, tokens, **fields), decode.generate(ids, tokens, **fields)
    )


async def test_decode_answers_with_what_prefill_reused() -> None:
    async with pair() as (prefill, decode, at), running() as whole:
        for room, reused in ((ROOM, 0), (ROOM + 1, 96)):
            first, second = await both(prefill, decode, IDS, 5, bootstrap_room=room, **at)
            assert first.json()["meta_info"]["completion_tokens"] == 0
            answer = second.json()
            assert answer["meta_info"]["cached_tokens"] == reused
            assert answer["meta_info"]["completion_tokens"] == 5
        expected = (await whole.generate(IDS, 5)).json()
        assert answer["output_ids"] == expected["output_ids"]
        info = (await decode.client.get("/server_info")).json()
        assert info["kvcompass_mock"]["prefill_busy_us"] == 0
        assert info["kvcompass_mock"]["generated_tokens"] == 10
        assert info["disaggregation_mode"] == "decode"


async def test_decode_waits_for_prefill_whoever_comes_first() -> None:
    async with pair() as (prefill, decode, at):
        early = asyncio.create_task(decode.generate(IDS, 3, bootstrap_room=ROOM, **at))
        done, _ = await asyncio.wait([early], timeout=0.1)
        assert not done
        await prefill.generate(IDS, 3, bootstrap_room=ROOM, **at)
        assert (await early).status_code == 200
        await prefill.generate(IDS, 3, bootstrap_room=ROOM + 1, **at)
        assert (await decode.generate(IDS, 3, bootstrap_room=ROOM + 1, **at)).status_code == 200


async def test_decode_gives_up_in_time() -> None:
    async with pair(transfer_timeout_s=0.1) as (_, decode, at):
        response = await decode.generate(IDS, 3, bootstrap_room=ROOM, **at)
    assert response.status_code == 500
    assert "Decode transfer failed" in response.json()["message"]


async def test_decode_fails_at_once_when_prefill_ends_without_result() -> None:
    async with pair(time_scale=100.0) as (prefill, decode, at):
        asked = asyncio.create_task(both(prefill, decode, IDS, 3, bootstrap_room=ROOM, rid="r", **at))
        await prefill.until_running(1)
        await prefill.client.post("/abort_request", json={"rid": "r"})
        first, second = await asked
    assert (first.status_code, second.status_code) == (400, 500)


async def test_decode_fails_at_once_when_prefill_answers_500() -> None:
    async with pair(fault_switches=True) as (prefill, decode, at):
        await prefill.faults(status_500=1.0)
        first, second = await both(prefill, decode, IDS, 3, bootstrap_room=ROOM, **at)
    assert (first.status_code, second.status_code) == (500, 500)
    assert "nothing to hand over" in second.json()["message"]


async def test_a_client_that_leaves_ends_the_wait_for_prefill() -> None:
    async with pair() as (_, decode, at):
        asked = asyncio.create_task(decode.generate(IDS, 3, bootstrap_room=ROOM, **at))
        await until(lambda: "part of a request" in task_names())
        asked.cancel()
        await until(lambda: "part of a request" not in task_names())


def task_names() -> set[str]:
    return {task.get_name() for task in asyncio.all_tasks()}


async def test_a_prefill_engine_that_hangs_hands_nothing_over() -> None:
    async with pair(fault_switches=True) as (prefill, decode, at):
        await prefill.generate(IDS, 3, bootstrap_room=ROOM, **at)
        await prefill.faults(hang=True)
        asked = asyncio.create_task(decode.generate(IDS, 3, bootstrap_room=ROOM, **at))
        done, _ = await asyncio.wait([asked], timeout=0.2)
        assert not done
        await prefill.faults()
        assert (await asked).status_code == 200


@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_half_needs_a_room(role: str) -> None:
    async with running(role=role, bootstrap_port=0) as rig:
        response = await rig.generate(IDS)
    assert response.status_code == 400
    assert "without bootstrap room id" in response.json()["message"]


async def test_an_engine_that_does_both_ignores_rooms() -> None:
    async with running(dp_size=2) as rig:
        answers = [(await rig.generate(IDS, 2, bootstrap_room=ROOM)).json() for _ in range(2)]
    assert [answer["meta_info"]["dp_rank"] for answer in answers] == [0, 1]


@pytest.mark.parametrize("profile", ["0.5.10", "0.5.23"])
async def test_decode_says_nothing_of_its_cache_and_prefill_does(profile: str) -> None:
    async with pair(event_profile=profile) as (prefill, decode, at), prefill.listening() as engine:
        await both(prefill, decode, IDS, 40, bootstrap_room=ROOM, **at)
        await engine.hear_stored(IDS)
        publisher = decode.server.ranks.all[0].publisher
        assert publisher is not None
        assert publisher.sequence == 0


async def test_a_room_gives_the_rank_on_both_sides() -> None:
    async with pair(dp_size=2) as (prefill, decode, at):
        for room in (ROOM, ROOM + 1):
            answers = await both(prefill, decode, IDS, 2, bootstrap_room=room, **at)
            assert {answer.json()["meta_info"]["dp_rank"] for answer in answers} == {room % 2}


async def test_streams_come_from_decode() -> None:
    async with pair() as (prefill, decode, at):
        body = {"model": "m", "prompt": IDS, "max_tokens": 4, "ignore_eos": True, "bootstrap_room": ROOM}
        _, answer = await asyncio.gather(
            *(
                rig.client.post("/v1/completions", json={**body, **at, "stream": True})
                for rig in (prefill, decode)
            )
        )
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.text.count('"text"') >= 1


async def test_rooms_are_bounded_and_the_oldest_goes() -> None:
    rooms = Rooms(limit=2)
    waiting = asyncio.create_task(rooms.transfer(1))
    await asyncio.sleep(0)
    rooms.settle(2, Transfer(16))
    rooms.settle(3, Transfer(32))
    assert (await waiting).failed
    assert len(rooms) == 2
    assert await rooms.transfer(3) == Transfer(32)
    assert len(rooms) == 1


async def test_nonsense_is_not_answered_and_harms_nobody() -> None:
    rooms = Rooms()
    server = TransferServer(rooms, 5.0, FaultSwitches(lambda _: None).until_answering)
    await server.start("127.0.0.1", 0)
    try:
        for line in (b"what\n", b'{"room": "x"}\n', b"x" * 5_000, b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(line)
            writer.write_eof()
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        rooms.settle(7, Transfer(16, 8))
        assert await ask_for_transfer("127.0.0.1", server.port, 7, 5.0) == Transfer(16, 8)
        with pytest.raises(TransferError):
            await ask_for_transfer("127.0.0.1", server.port, 8, 0.05)
    finally:
        await server.stop()
    with pytest.raises(TransferError):
        await ask_for_transfer("127.0.0.1", server.port, 7, 1.0)
