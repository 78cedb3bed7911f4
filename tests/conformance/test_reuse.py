"""How much of a prompt an engine reuses, and how it says so."""

import json
from typing import Any

import httpx
import pytest

from tests.conformance.engine_under_test import EngineUnderTest

pytestmark = pytest.mark.asyncio(loop_scope="session")

DETAILS_ALWAYS_SINCE = (0, 5, 23)
SALTS_SINCE = (0, 5, 11)


@pytest.mark.parametrize("more", [0, 1, 5])
async def test_all_but_the_last_token_is_reused_floored_to_pages(engine: EngineUnderTest, more: int) -> None:
    ids = engine.prompt(4, more)
    assert await engine.cached(ids) == 0
    assert await engine.cached(ids) == (len(ids) - 1) // engine.page * engine.page


async def test_a_shared_beginning_is_reused_up_to_where_prompts_part(
    engine: EngineUnderTest,
) -> None:
    ids = engine.prompt(4)
    await engine.generate(ids)
    parts = [*ids[: 2 * engine.page + 3], *engine.prompt(2)]
    assert await engine.cached(parts) == 2 * engine.page


async def test_what_was_generated_is_reused_in_the_next_turn(engine: EngineUnderTest) -> None:
    ids = engine.prompt(2)
    answer = await engine.generate(ids, tokens=2 * engine.page)
    turn = [*ids, *answer["output_ids"], *engine.prompt(1)]
    assert await engine.cached(turn) == (len(ids) + 2 * engine.page - 1) // engine.page * engine.page


async def test_prefill_only_answers_nothing_and_serves_those_who_come_after(engine: EngineUnderTest) -> None:
    ids = engine.prompt(3)
    answer = await engine.generate(ids, tokens=0)
    assert answer["meta_info"]["completion_tokens"] == 0
    assert answer["meta_info"]["finish_reason"]["type"] == "length"
    assert answer["meta_info"]["prompt_tokens"] == len(ids)
    assert await engine.cached([*ids, *engine.prompt(0, 2)]) == len(ids)


async def test_generate_tells_where_reused_tokens_came_from(engine: EngineUnderTest) -> None:
    ids = engine.prompt(3, more=1)
    await engine.generate(ids)
    meta = (await engine.generate(ids))["meta_info"]
    details = meta.get("cached_tokens_details")
    if details is not None:
        assert details["device"] + details.get("host", 0) == meta["cached_tokens"] == 3 * engine.page


async def test_salts_do_not_share(engine: EngineUnderTest) -> None:
    if engine.version < SALTS_SINCE:
        pytest.skip("0.5.10 accepts salts and shares all the same")
    ids = engine.prompt(3, more=1)

    async def cached(**fields: str) -> int:
        body = {"model": engine.model, "prompt": ids, "max_tokens": 1, **fields}
        response = await engine.client.post("/v1/completions", json=body)
        assert response.status_code == 200, response.text
        return _cached(response.json()["usage"])

    assert await cached(cache_salt="one") == 0
    assert await cached(cache_salt="two") == 0
    assert await cached() == 0
    assert await cached(cache_salt="one") == 3 * engine.page
    assert await cached() == 3 * engine.page


async def test_usage_counts_tokens_and_reuse(engine: EngineUnderTest) -> None:
    ids = engine.prompt(3, more=2)
    body = {"model": engine.model, "prompt": ids, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
    first = (await engine.client.post("/v1/completions", json=body)).json()["usage"]
    second = (await engine.client.post("/v1/completions", json=body)).json()["usage"]
    for usage in (first, second):
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(ids), 4)
        assert usage["total_tokens"] == len(ids) + 4
    if engine.version < DETAILS_ALWAYS_SINCE:
        assert first["prompt_tokens_details"] is None
    assert (_cached(first), _cached(second)) == (0, 3 * engine.page)


async def test_a_stream_tells_usage_last_and_only_when_asked(engine: EngineUnderTest) -> None:
    ids = engine.prompt(2, more=2)
    body = {
        "model": engine.model,
        "prompt": ids,
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    unasked = await _streamed(engine.client, body)
    assert all(not chunk.get("usage") for chunk in unasked)
    *chunks, last = await _streamed(engine.client, {**body, "stream_options": {"include_usage": True}})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert _cached(last["usage"]) == 2 * engine.page
    assert chunks
    assert all(not chunk.get("usage") for chunk in chunks)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def _cached(usage: dict[str, Any]) -> int:
    details = usage.get("prompt_tokens_details")
    return int(details["cached_tokens"]) if details else 0


async def _streamed(client: httpx.AsyncClient, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    *events, end, rest = response.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]
