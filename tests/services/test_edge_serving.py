"""Requests that go well: what the client sees, what the engine gets."""

import httpx
import orjson
import pytest
from openai import AsyncOpenAI

from tests.services.edge_fleet import CHAT, MODEL, eventually, fleet, status


async def test_an_answer_passes_and_headers_tell_where_from(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "us-1", 512)
        answer = await client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "mine-1"})
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"] == "from us-1"
        assert answer.headers["x-request-id"] == "mine-1"
        assert answer.headers["x-kvcompass-worker"] == "us-1"
        assert answer.headers["x-kvcompass-region"] == "us"
        assert answer.headers["x-kvcompass-match-tokens"] == "512"
        assert int(answer.headers["x-kvcompass-decision-us"]) >= 0
        assert lab.outcomes() == {"ok": 1}
        await eventually(lab.at_rest)


async def test_the_engine_gets_the_clients_bytes_and_no_secrets(monkeypatch):
    async with fleet(monkeypatch, workers=1) as lab, lab.client() as client:
        body = b'  {"model":"model", "prompt":[1,2,3], "unknown_field": {"x": 1e2}}\n'
        headers = {
            "authorization": "Bearer secret",
            "cookie": "a=b",
            "x-kvcompass-worker": "eu-0",
            "x-request-id": "bad id!",
            "traceparent": "00-1-2-3",
            "content-type": "application/json",
        }
        answer = await client.post("/v1/completions", content=body, headers=headers)
        assert answer.status_code == 200
        engine = lab.engines["us-0"]
        assert engine.bodies == [body]
        seen = engine.headers[0]
        assert not {"authorization", "cookie", "x-kvcompass-worker"} & set(seen)
        assert seen["traceparent"] == "00-1-2-3"
        assert seen["x-request-id"] == answer.headers["x-request-id"] != "bad id!"


@pytest.mark.parametrize("asked", [True, False])
async def test_usage_in_streams_is_always_asked_for_and_shown_only_when_asked(monkeypatch, asked):
    async with fleet(monkeypatch, workers=1) as lab, lab.client() as client:
        options = {"stream_options": {"include_usage": True}} if asked else {}
        answer = await client.post("/v1/chat/completions", json={**CHAT, "stream": True, **options})
        assert orjson.loads(lab.engines["us-0"].bodies[0])["stream_options"] == {"include_usage": True}
        assert (b'"usage"' in answer.content) is asked
        assert answer.content.endswith(b"data: [DONE]\n\n")
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-kvcompass-worker"] == "us-0"


async def test_the_official_client_works_unmodified(monkeypatch):
    async with fleet(monkeypatch, workers=1) as lab:
        http = httpx.AsyncClient(trust_env=False)
        async with AsyncOpenAI(base_url=lab.base() + "/v1", api_key="any", http_client=http) as client:
            whole = await client.chat.completions.create(**CHAT)
            assert whole.choices[0].message.content == "from us-0"
            assert whole.usage is not None
            stream = await client.chat.completions.create(**CHAT, stream=True)
            chunks = [chunk async for chunk in stream]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "from us-0"
            legacy = await client.completions.create(model=MODEL, prompt="once upon a time")
            assert legacy.choices[0].text == "from us-0"
            assert [model.id async for model in client.models.list()] == [MODEL]
            assert (await client.models.retrieve(MODEL)).id == MODEL


async def test_reuse_is_learnt_and_wrong_claims_are_counted(monkeypatch):
    async with fleet(monkeypatch, workers=1) as lab, lab.client() as client:
        lab.holds("us", "us-0", 64)
        lab.engines["us-0"].cached_tokens = 64
        await client.post("/v1/chat/completions", json=CHAT)
        assert lab.metric("us", "wrong_claims_total", worker="us-0") == 0
        lab.engines["us-0"].cached_tokens = 16
        await client.post("/v1/chat/completions", json={**CHAT, "stream": True})
        assert lab.metric("us", "wrong_claims_total", worker="us-0") == 1
        assert lab.metric("us", "claimed_tokens_total", worker="us-0") == 128
        assert lab.metric("us", "reused_tokens_total", worker="us-0") == 80
        assert lab.edges["us"].role.fleet.beliefs.values[0] < 1.0


async def test_long_prompts_go_through(monkeypatch):
    async with fleet(monkeypatch, workers=1) as lab, lab.client() as client:
        text = "the quick brown fox jumps over the lazy dog " * 10_000
        body = {**CHAT, "messages": [{"role": "user", "content": text}]}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert len(lab.engines["us-0"].bodies[0]) > 400_000


async def test_engines_get_the_key_they_demand_and_no_other(monkeypatch):
    async with fleet(monkeypatch, engine_key="key-of-the-engines") as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        headers = {"authorization": "Bearer key-of-a-client"}
        assert (await client.post("/v1/chat/completions", json=CHAT, headers=headers)).status_code == 200
        assert lab.engines["us-0"].headers[0]["authorization"] == "Bearer key-of-the-engines"


@pytest.mark.parametrize("code", [401, 403])
async def test_an_engine_that_takes_no_key_of_ours_is_no_fault_of_the_clients(monkeypatch, capfd, code):
    alone = fleet(monkeypatch, regions=("us",), engine_key="key-of-the-engines")
    async with alone as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        lab.behave("us-0", status(code))
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        assert lab.metric("us", "retries_total", cause=f"status_{code}") == 1
        lab.behave("us", status(code))
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_failed")
        assert lab.outcomes() == {"ok": 1, "engine_failed": 1}
    lines = [line for line in capfd.readouterr().out.splitlines() if "key not taken" in line]
    assert len(lines) == 1, "one a second"
    assert "engine_key" in lines[0]
    assert "us-0" in lines[0]


async def test_peers_never_see_the_key_of_the_engines(monkeypatch):
    async with fleet(monkeypatch, regions=("us", "eu"), engine_key="key-of-the-engines") as lab:
        async with lab.client() as client:
            lab.holds("us", "eu-0", 8_192)
            answer = await client.post("/v1/completions", json={"model": MODEL, "prompt": [7] * 9_000})
        assert answer.status_code == 200  # the far edge took its own key, not this one
        assert lab.engines["eu-0"].headers[0]["authorization"] == "Bearer key-of-the-engines"
