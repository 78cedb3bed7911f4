"""The double's HTTP face, over real sockets: what a client of SGLang 0.5.10 may rely on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from openai import AsyncOpenAI

from tests.services import mock_engine_rig
from tests.services.mock_engine_rig import ENCODER

QUESTION = [{"role": "user", "content": "Tell me why the tide comes twice a day, and keep it short please."}]


@asynccontextmanager
async def engine(**changes: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with mock_engine_rig.running(**{"event_endpoint": "", "replay_endpoint": "", **changes}) as rig:
        yield rig.client


async def chat(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/v1/chat/completions", json={"model": "m", "messages": QUESTION, **fields})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def streamed(client: httpx.AsyncClient, path: str, body: dict[str, Any]) -> list[Any]:
    async with client.stream("POST", path, json={**body, "stream": True}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        text = "".join([part async for part in response.aiter_text()])
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in text.split("\n\n")[:-2]]


async def running(client: httpx.AsyncClient) -> int:
    (load,) = (await client.get("/v1/loads")).json()["loads"]
    return int(load["num_total_reqs"])


async def until_running(client: httpx.AsyncClient, count: int) -> None:
    async with asyncio.timeout(mock_engine_rig.PATIENCE_S):
        while await running(client) != count:
            pass  # each look is a request


async def test_chat_has_sglangs_shape_and_reports_reuse_only_when_there_is_some() -> None:
    async with engine() as client:
        first, second = await chat(client, max_tokens=9), await chat(client, max_tokens=9)
        assert set(first) == {"id", "object", "created", "model", "choices", "usage", "metadata"}
        (choice,) = first["choices"]
        assert set(choice) == {"index", "message", "logprobs", "finish_reason", "matched_stop"}
        assert choice["finish_reason"] == "length"
        assert first["usage"]["completion_tokens"] == 9
        assert first["usage"]["prompt_tokens_details"] is None
        prompt = first["usage"]["prompt_tokens"]
        assert prompt == len(ENCODER.encode(ENCODER.render_chat(QUESTION), rendered=True))
        reused = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert reused == (prompt - 1) // 16 * 16
        assert second["choices"] == first["choices"]


async def test_an_answer_depends_on_its_prompt_alone() -> None:
    async with engine() as one, engine(page_size=8, stream_interval=5) as other:
        whole = (await chat(one))["choices"][0]["message"]["content"]
        shorter = (await chat(other, max_tokens=10))["choices"][0]["message"]["content"]
        again = (await chat(other))["choices"][0]["message"]["content"]
        changed = [{"role": "user", "content": "Something else"}]
        different = (await chat(one, messages=changed))["choices"][0]["message"]["content"]
    assert whole == again
    assert whole.startswith(shorter)
    assert different != whole


async def test_a_stream_carries_the_same_answer_and_usage_only_when_asked() -> None:
    async with engine() as client:
        whole = await chat(client)
        body = {"model": "m", "messages": QUESTION}
        plain = await streamed(client, "/v1/chat/completions", body)
        with_usage = await streamed(
            client, "/v1/chat/completions", {**body, "stream_options": {"include_usage": True}}
        )
    assert (
        "".join(chunk["choices"][0]["delta"]["content"] or "" for chunk in plain)
        == (whole["choices"][0]["message"]["content"])
    )
    assert plain[0]["choices"][0]["delta"]["role"] == "assistant"
    assert [c["choices"][0]["finish_reason"] for c in plain] == [None] * (len(plain) - 1) + ["stop"]
    assert all(chunk["usage"] is None for chunk in plain)
    *_, last = with_usage
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in with_usage[:-1])


async def test_the_stream_interval_thins_chunks_out() -> None:
    async with engine(stream_interval=10, time_scale=0.2) as client:
        chunks = await streamed(
            client, "/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 25, "ignore_eos": True}
        )
    assert 2 <= len(chunks) <= 4
    assert sum(len(chunk["choices"][0]["text"].split(" ")) for chunk in chunks) > len(chunks)


async def test_the_openai_client_works_unmodified() -> None:
    async with engine() as client:
        openai = AsyncOpenAI(api_key="any", base_url=f"{client.base_url}/v1", max_retries=0)
        answer = await openai.chat.completions.create(model="m", messages=QUESTION)  # type: ignore[arg-type]
        stream = await openai.chat.completions.create(
            model="m",
            messages=QUESTION,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
        models = await openai.models.list()
        await openai.close()
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.prompt_tokens_details is not None
    assert [model.id for model in models.data] == ["m"]


async def test_completions_take_a_string_or_its_token_ids() -> None:
    ids = ENCODER.encode("The tide comes twice a day because").tolist()
    async with engine() as client:
        answers = [
            (await client.post("/v1/completions", json={"model": "m", "prompt": prompt})).json()
            for prompt in ("The tide comes twice a day because", ids, [ids])
        ]
        chunks = await streamed(client, "/v1/completions", {"model": "m", "prompt": ids})
    assert len({answer["choices"][0]["text"] for answer in answers}) == 1
    assert answers[0]["usage"]["completion_tokens"] == 16
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == answers[0]["choices"][0]["text"]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


async def test_prefill_only_stores_blocks_for_those_who_come_after() -> None:
    ids = list(range(100, 150))
    async with engine() as client:
        prefill = {"input_ids": ids, "sampling_params": {"max_new_tokens": 0}}
        first = (await client.post("/generate", json=prefill)).json()
        second = (await client.post("/generate", json={"input_ids": [*ids, 1], "rid": "mine"})).json()
        chunks = await streamed(client, "/generate", {"input_ids": [*ids, 1]})
    assert (first["text"], first["output_ids"], first["meta_info"]["cached_tokens"]) == ("", [], 0)
    assert first["meta_info"]["finish_reason"] == {"type": "length", "length": 0}
    assert second["meta_info"]["cached_tokens"] == 48
    assert second["meta_info"]["id"] == "mine"
    assert second["text"] == chunks[-1]["text"]
    assert chunks[-1]["text"].startswith(chunks[0]["text"])


async def test_the_next_turn_reuses_the_answer_as_well() -> None:
    async with engine() as client:
        first = await chat(client, max_tokens=200)
        turns = [
            *QUESTION,
            {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
            {"role": "user", "content": "Go on."},
        ]
        second = await chat(client, messages=turns)
    reused = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    before = first["usage"]["prompt_tokens"] + first["usage"]["completion_tokens"] - 1
    assert reused == before // 16 * 16


REFUSALS: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v1/chat/completions", {"model": "x", "messages": QUESTION}, 404, "'x' does not exist"),
    ("/v1/chat/completions", {"model": "m"}, 400, "messages"),
    ("/v1/chat/completions", {"model": "m", "messages": []}, 400, "messages"),
    ("/v1/chat/completions", {"model": "m", "messages": [{"role": "user"}]}, 400, "messages[0].content"),
    ("/v1/chat/completions", {"model": "m", "messages": QUESTION, "n": 2}, 400, "n"),
    ("/v1/chat/completions", {"model": "m", "messages": QUESTION, "max_tokens": -1}, 400, "max_tokens"),
    ("/v1/chat/completions", {"model": "m", "messages": QUESTION, "max_tokens": 999}, 400, "context"),
    ("/v1/completions", {"model": "m", "prompt": ""}, 400, "empty"),
    ("/v1/completions", {"model": "m", "prompt": ["a", "b"]}, 400, "one prompt"),
    ("/v1/completions", {"model": "m", "prompt": [1, "b"]}, 400, "token ids"),
    ("/v1/completions", {"model": "m", "prompt": [-1]}, 400, "token ids"),
    ("/v1/completions", {"model": "m", "prompt": [2**70]}, 400, ""),
    ("/v1/completions", {"model": "m", "prompt": "a", "max_tokens": 0}, 400, "positive"),
    ("/v1/completions", {"model": "m", "prompt": [1] * 300}, 400, "longer than the model's context"),
    ("/generate", {}, 400, "text or input_ids"),
    ("/generate", {"text": "a", "sampling_params": {"max_new_tokens": -1}}, 400, "at least 0"),
    ("/nothing", {}, 404, "Not Found"),
    ("/v1/models", {}, 405, "Method"),
]


async def test_refusals_say_what_is_wrong() -> None:
    async with engine(context_length=256) as client:
        for path, body, status, where in REFUSALS:
            response = await client.post(path, json=body)
            error = response.json()
            assert response.status_code == status, (path, body)
            assert where in error.get("error", error)["message"], (path, body)


async def test_bodies_that_are_not_json_are_refused() -> None:
    headers = {"content-type": "application/json"}
    async with engine() as client:
        broken = await client.post("/v1/completions", content=b'{"model":', headers=headers)
        typed = await client.post("/v1/completions", content=b"{}", headers={"content-type": "text/plain"})
    assert (broken.status_code, typed.status_code) == (400, 400)
    assert "application/json" in typed.json()["message"]


async def test_a_full_queue_says_come_back_later() -> None:
    long = {"input_ids": list(range(2_000)), "sampling_params": {"max_new_tokens": 0}}
    async with engine(max_queued_requests=1, time_scale=20) as client, asyncio.TaskGroup() as group:
        waiting = [group.create_task(client.post("/generate", json=long)) for _ in range(2)]
        await until_running(client, 2)
        refused = await client.post("/generate", json=long)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        await client.post("/abort_request", json={"abort_all": True})
        assert [(await task).status_code for task in waiting] == [400, 400]


async def test_a_client_that_leaves_frees_what_it_held() -> None:
    endless = {"model": "m", "prompt": "Go", "max_tokens": 50_000, "ignore_eos": True}
    async with engine(time_scale=1) as client:
        for stream in (True, False):
            task = asyncio.create_task(
                client.post("/v1/completions", json={**endless, "stream": stream}), name="leaving"
            )
            await until_running(client, 1)
            assert (await client.post("/flush_cache")).status_code == 400
            task.cancel()
            await until_running(client, 0)
        (load,) = (await client.get("/v1/loads")).json()["loads"]
        assert load["num_used_tokens"] == 0
        assert (await client.get("/flush_cache")).status_code == 200


async def test_an_abort_by_id_ends_a_stream_with_an_error() -> None:
    endless = {"model": "m", "prompt": "Go", "max_tokens": 50_000, "ignore_eos": True, "rid": "r"}
    async with engine(time_scale=1) as client:
        task = asyncio.create_task(streamed(client, "/v1/completions", endless))
        await until_running(client, 1)
        async with asyncio.timeout(mock_engine_rig.PATIENCE_S):
            while not (await client.get("/server_info")).json()["kvcompass_mock"]["generated_tokens"]:
                pass
        assert (await client.post("/abort_request", json={"rid": "r"})).status_code == 200
        *_, last = await task
        assert last["error"]["code"] == 400
        assert await running(client) == 0


async def test_it_tells_what_it_is_and_how_busy() -> None:
    async with engine(event_endpoint=mock_engine_rig.ANY_PORT) as client:
        await chat(client, max_tokens=5)
        info = (await client.get("/server_info")).json()
        assert (info["version"], info["page_size"], info["served_model_name"]) == ("0.5.10", 16, "m")
        assert json.loads(info["kv_events_config"])["publisher"] == "zmq"
        busy = info["kvcompass_mock"]
        assert busy["prefill_busy_us"] > 0
        assert busy["decode_busy_us"] > 4 * 11_000
        loads = (await client.get("/v1/loads")).json()
        assert loads["aggregate"]["total_reqs"] == 0
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/models/m")).json()["max_model_len"] == 131_072
        assert (await client.get("/v1/models/x")).status_code == 404
        assert 'sglang:num_queue_reqs{model_name="m"} 0' in (await client.get("/metrics")).text
