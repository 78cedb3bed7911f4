"""What an engine says of itself, and that whoever leaves frees what was held."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.conformance.engine_under_test import PATIENCE_S, EngineUnderTest

pytestmark = pytest.mark.asyncio(loop_scope="session")

COUNTERS_SINCE = (0, 5, 23)
GET_LOAD_UNTIL = (0, 5, 20)
READY_SINCE = (0, 5, 23)
LONG = 1_500
"""Tokens of an answer that nobody waits for."""


async def until(engine: EngineUnderTest, **wanted: int) -> dict[str, Any]:
    """Wait for a load that has these values."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            load = await engine.load()
            if all(load[name] == value for name, value in wanted.items()):
                return load
            await asyncio.sleep(0.02)


def long_answer(engine: EngineUnderTest, rid: str) -> dict[str, Any]:
    """A request that runs for long unless somebody ends it."""
    sampling = {"max_new_tokens": LONG, "ignore_eos": True, "temperature": 0}
    ids = engine.prompt(2)
    return {"input_ids": ids, "sampling_params": sampling, "stream": True, "rid": rid}


async def generated_pages(engine: EngineUnderTest) -> int:
    """Pages stored since the cache was emptied, but for the two of the prompt."""
    await engine.settle()
    return sum(len(event.hashes) for event in engine.events() if event.medium == "GPU") - 2


async def test_loads_has_an_entry_a_rank_with_the_documented_fields(engine: EngineUnderTest) -> None:
    body = (await engine.client.get("/v1/loads")).json()
    assert body["version"] == engine.info["version"]
    assert [load.get("dp_rank", 0) for load in body["loads"]] == list(range(engine.dp_size))
    for load in body["loads"]:
        for name in ("num_running_reqs", "num_waiting_reqs", "num_used_tokens", "max_total_num_tokens"):
            assert type(load[name]) is int and load[name] >= 0, name
        for name in ("token_usage", "gen_throughput", "cache_hit_rate"):
            assert isinstance(load[name], int | float), name
        assert load["max_total_num_tokens"] > 0


async def test_prefill_counters_grow_by_what_was_computed(engine: EngineUnderTest) -> None:
    if engine.version < COUNTERS_SINCE:
        pytest.skip("since 0.5.23")
    ids = engine.prompt(4, more=1)
    before = await engine.load()
    await engine.generate(ids)
    await engine.generate(ids)
    after = await engine.load()
    computed = len(ids) + 1
    assert after["total_prefill_uncached_tokens"] - before["total_prefill_uncached_tokens"] == computed
    assert after["total_prefill_busy_us"] > before["total_prefill_busy_us"]
    assert after["num_waiting_uncached_tokens"] == 0


async def test_get_load_is_there_until_0_5_20(engine: EngineUnderTest) -> None:
    response = await engine.client.get("/get_load")
    if engine.version > GET_LOAD_UNTIL:
        assert response.status_code == 404
        return
    (load, *_) = response.json()
    assert {"dp_rank", "num_reqs", "num_waiting_reqs", "num_tokens"} <= set(load)


async def test_ready_answers_at_once_where_there_is_one(engine: EngineUnderTest) -> None:
    status = (await engine.client.get("/ready")).status_code
    assert status == (200 if engine.version >= READY_SINCE else 404)


async def test_the_load_is_told_before_health_is(engine: EngineUnderTest) -> None:
    health = asyncio.create_task(engine.client.get("/health"))
    await asyncio.sleep(0)
    await engine.load()
    assert not health.done(), "/health generates, so it is no cheap probe"
    assert (await health).status_code == 200


async def test_server_info_tells_what_an_agent_must_know(engine: EngineUnderTest) -> None:
    assert engine.page >= 1
    assert engine.version >= (0, 5, 10)
    if engine.version >= (0, 5, 23):
        described = engine.info["kv_events"]
        assert described["block_size"] == engine.page
        assert described["dp_size"] == engine.dp_size
        assert described["endpoint_port_base"] == int(engine.events_at.rpartition(":")[2])
        assert described["replay_endpoint_port_base"] == int(engine.replay_at.rpartition(":")[2])


async def test_metrics_have_sglangs_names(engine: EngineUnderTest) -> None:
    text = (await engine.client.get("/metrics", follow_redirects=True)).text
    for name in ("sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage"):
        assert name in text


async def test_closing_the_connection_frees_everything(engine: EngineUnderTest) -> None:
    async with engine.client.stream("POST", "/generate", json=long_answer(engine, "leaves")) as response:
        assert response.status_code == 200
        parts = response.aiter_bytes()
        await anext(parts)
        await until(engine, num_running_reqs=1)  # later versions tell of it some decode steps late
    await until(engine, num_running_reqs=0, num_waiting_reqs=0)
    assert await generated_pages(engine) < LONG // engine.page, "it ran to its end"


async def test_an_abort_frees_everything_and_what_was_computed_stays_cached(engine: EngineUnderTest) -> None:
    body = long_answer(engine, "aborted")
    async with engine.client.stream("POST", "/generate", json=body) as response:
        parts = response.aiter_bytes()
        await anext(parts)
        await engine.client.post("/abort_request", json={"rid": "aborted"})
        async for _ in parts:
            pass
    await until(engine, num_running_reqs=0, num_waiting_reqs=0)
    assert await generated_pages(engine) < LONG // engine.page, "it ran to its end"
    assert await engine.cached([*body["input_ids"], *engine.prompt(0, 1)]) == len(body["input_ids"])


async def test_an_abort_of_nobody_is_no_error(engine: EngineUnderTest) -> None:
    response = await engine.client.post("/abort_request", json={"rid": "nobody"})
    assert response.status_code == 200


@pytest.mark.parametrize("body", [{}, {"input_ids": "no list"}, {"input_ids": []}])
async def test_a_bad_request_is_the_clients_fault(engine: EngineUnderTest, body: dict[str, Any]) -> None:
    response = await engine.client.post("/generate", json=body)
    assert response.status_code in (400, 422)


async def test_a_prompt_beyond_the_context_is_refused(engine: EngineUnderTest) -> None:
    length = int(engine.info["context_length"] or 2_048) + 1
    body: dict[str, Any] = {"input_ids": [11] * length, "sampling_params": {"max_new_tokens": 1}}
    response: httpx.Response = await engine.client.post("/generate", json=body)
    assert response.status_code == 400
