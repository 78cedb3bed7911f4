"""What the edge says no to, in the shape OpenAI clients know; who may see what."""

import asyncio

import httpx
import openai
import pytest
from openai import AsyncOpenAI

from services.edge.forwarding.upstream import Upstream
from services.edge.settings import EdgeSettings, Limits, Timeouts, check_settings
from services.runtime.auth import hash_api_key
from services.runtime.settings import SettingsError
from tests.services.edge_fleet import CHAT, MODEL, eventually, fleet, hangs

KEYS = {
    "lab_mode": False,
    "api_keys": {hash_api_key("key-of-a"): "a", hash_api_key("key-of-b"): "b"},
    "admin_keys": [hash_api_key("key-of-admin")],
}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def shaped(answer: httpx.Response) -> tuple[int, str | None, str]:
    """Status, param and code of an error in OpenAI's shape."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert answer.headers["x-request-id"]
    return answer.status_code, error["param"], error["code"]


async def test_every_error_has_openais_shape(monkeypatch):
    limits = Limits(body_bytes=10_000, header_bytes=2_000)
    async with fleet(monkeypatch, limits=limits) as lab, lab.client() as client:
        post = client.post

        async def chunks():
            for _ in range(200):
                yield b"x" * 100_000

        url = "/v1/chat/completions"
        assert shaped(await post(url, json={**CHAT, "model": "gpt-4"})) == (404, "model", "model_not_found")
        assert shaped(await post(url, json={"messages": []})) == (400, "model", "invalid_value")
        assert shaped(await post(url, content=b"{nonsense")) == (400, None, "invalid_value")
        assert shaped(await post(url, json={"model": MODEL})) == (400, "messages", "invalid_value")
        role = {"model": MODEL, "messages": [{"role": "king", "content": "x"}]}
        assert shaped(await post(url, json=role)) == (400, "messages[0].role", "invalid_value")
        both = {"model": MODEL, "prompt": ["a", "b"]}
        assert shaped(await post("/v1/completions", json=both)) == (400, "prompt", "invalid_value")
        assert shaped(await post(url, content=b"x" * 20_000_000)) == (413, None, "request_too_large")
        assert shaped(await post(url, content=chunks())) == (413, None, "request_too_large")
        zipped = {"content-encoding": "gzip"}
        assert shaped(await post(url, json=CHAT, headers=zipped)) == (415, None, "unsupported_encoding")
        form = {"content-type": "application/x-www-form-urlencoded"}
        assert shaped(await post(url, json=CHAT, headers=form)) == (415, None, "unsupported_media_type")
        assert "chosen" in (await post("/v1/kvcompass/route", json=CHAT, headers=form)).json()
        long = {"x-long": "x" * 3_000}
        assert shaped(await post(url, json=CHAT, headers=long)) == (431, None, "headers_too_large")
        assert shaped(await client.get("/v1/models", headers=long)) == (431, None, "headers_too_large")
        assert shaped(await client.get(url)) == (405, None, "method_not_supported")
        assert shaped(await client.delete("/v1/models")) == (405, None, "method_not_supported")
        assert (await client.get("/v1/models/")).status_code in (200, 404), (
            "no redirect to a host of the client's"
        )
        assert (await client.get("/v1/kvcompass/state/")).status_code == 404
        assert shaped(await post("/v1/nothing")) == (404, None, "unknown_url")
        assert "begin with /v1" in (await post("/chat/completions")).json()["error"]["message"]
        assert shaped(await client.get("/")) == (404, None, "unknown_url")
        assert shaped(await client.get("/v1/models/gpt-4")) == (404, "model", "model_not_found")
        assert lab.served() == {}
        assert lab.outcomes() == {"rejected": 11}


async def test_headers_may_be_as_long_as_the_settings_allow(monkeypatch):
    """Also where that is more than a listener takes by default."""
    long = {"x-long": "x" * (100 << 10)}
    async with fleet(monkeypatch, limits=Limits(header_bytes=128 << 10)) as lab, lab.client() as client:
        assert (await client.get("/v1/models", headers=long)).status_code == 200


async def test_the_official_client_raises_the_right_errors(monkeypatch):
    async with fleet(monkeypatch) as lab:
        http = httpx.AsyncClient(trust_env=False)
        async with AsyncOpenAI(base_url=lab.base() + "/v1", api_key="x", http_client=http) as client:
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await client.chat.completions.create(**{**CHAT, "model": "gpt-4"})
            with pytest.raises(openai.BadRequestError, match="messages"):
                await client.chat.completions.create(model=MODEL, messages=[])


async def test_a_fault_of_the_edge_has_openais_shape_on_every_route(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        monkeypatch.setattr(lab.edges["us"].role, "state", lambda _now_us: 1 / 0)
        monkeypatch.setattr(lab.edges["us"].role, "decide", lambda *_, **__: 1 / 0)
        failed = (500, None, "internal_error")
        assert shaped(await client.get("/v1/kvcompass/state")) == failed
        assert shaped(await client.post("/v1/kvcompass/route", json=CHAT)) == failed
        assert shaped(await client.post("/v1/chat/completions", json=CHAT)) == failed


async def test_a_full_edge_says_so(monkeypatch):
    async with fleet(monkeypatch, limits=Limits(concurrent_requests=1)) as lab, lab.client() as client:
        lab.behave("us", hangs)
        first = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        await eventually(lambda: lab.served() != {})
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert shaped(answer) == (503, None, "overloaded")
        assert answer.headers["retry-after"] == "1"
        first.cancel()
        await eventually(lab.at_rest)
        assert lab.outcomes() == {"overloaded": 1, "cancelled": 1}


async def test_a_body_that_never_ends_is_given_up(monkeypatch):
    async def trickle():
        yield b"{"
        await asyncio.sleep(1)

    timeouts = Timeouts(body_s=0.2, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts) as lab, lab.client() as client:
        answer = await client.post("/v1/chat/completions", content=trickle())
        assert shaped(answer) == (408, None, "request_timeout")
        assert lab.outcomes() == {"rejected": 1}


async def test_keys_decide_the_sharing_group(monkeypatch):
    async with fleet(monkeypatch, groups=("a", "b"), **KEYS) as lab, lab.client() as client:
        for key, worker in (("key-of-a", "us-0"), ("key-of-b", "us-1")):
            answer = await client.post("/v1/chat/completions", json=CHAT, headers=bearer(key))
            assert answer.json()["choices"][0]["message"]["content"] == f"from {worker}"
            assert not [name for name in answer.headers if name.startswith("x-kvcompass")]
        answer = await client.post("/v1/chat/completions", json=CHAT, headers=bearer("key-of-admin"))
        assert answer.headers["x-kvcompass-worker"] == "us-0"


async def test_strangers_are_refused(monkeypatch):
    async with fleet(monkeypatch, groups=("a", "b"), **KEYS) as lab, lab.client() as client:
        for headers in ({}, bearer("wrong"), {"authorization": "Basic key-of-a"}):
            for answer in (
                await client.post("/v1/chat/completions", json=CHAT, headers=headers),
                await client.post("/v1/kvcompass/route", json=CHAT, headers=headers),
                await client.get("/v1/kvcompass/state", headers=headers),
                await client.get("/v1/models", headers=headers),
            ):
                assert shaped(answer) == (401, None, "invalid_api_key")
        for answer in (
            await client.post("/v1/kvcompass/route", json=CHAT, headers=bearer("key-of-a")),
            await client.get("/v1/kvcompass/state", headers=bearer("key-of-a")),
        ):
            assert shaped(answer) == (403, None, "admin_key_required")
        assert (await client.get("/v1/models", headers=bearer("key-of-a"))).status_code == 200
        assert (await client.get("/health")).status_code == 200
        assert lab.served() == {}
        assert lab.outcomes() == {"unauthorized": 3}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"peer_key": "short"}, "peer_key"),
        ({"lab_mode": False}, "api_keys"),
        ({"limits": Limits(attempts=0)}, "limits.attempts"),
        ({"api_keys": {"sk-in-clear": "default"}}, "api_keys[0]"),
        ({"admin_keys": [hash_api_key("x"), "sk-in-clear"]}, "admin_keys[1]"),
    ],
)
def test_settings_that_cannot_work_are_named(changes, field):
    fields = {"id": "us", "plan": "p", "peer_key": "p" * 16, "lab_mode": True, **changes}
    with pytest.raises(SettingsError) as caught:
        check_settings(EdgeSettings(**fields))
    assert caught.value.field == field


def test_an_edge_that_only_admins_may_call_is_none_that_nobody_could():
    check_settings(EdgeSettings(id="us", plan="p", peer_key="p" * 16, admin_keys=KEYS["admin_keys"]))


async def test_an_edge_that_cannot_listen_leaves_nothing_open(monkeypatch):
    close, closed = Upstream.close, []

    async def counted(upstream):
        closed.append(upstream)
        await close(upstream)

    monkeypatch.setattr(Upstream, "close", counted)
    with pytest.raises(SettingsError, match="set grpc_listen to bind another address"):
        async with fleet(monkeypatch, grpc_listen="edge.invalid:1", insecure=True):
            pass
    assert len(closed) == 2, "to workers and to peers"


async def test_a_key_of_an_unknown_group_stops_the_start(monkeypatch):
    opened = []
    monkeypatch.setattr(Upstream, "__init__", lambda *_, **__: opened.append(1))
    with pytest.raises(SettingsError, match=r"'a' is not in the plan; it has default") as caught:
        async with fleet(monkeypatch, **KEYS):
            pass
    assert caught.value.field == "api_keys[0]"
    assert not opened, "nothing to close"
