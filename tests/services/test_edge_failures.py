"""Engines that fail: retried before the first byte, never after, no worker twice, one outcome each."""

import asyncio

import httpx
import orjson
import pytest
from aiohttp import web
from openai import APIError, AsyncOpenAI

from kvcompass.fleet.view import Standing
from services.edge.settings import Limits, Timeouts
from services.runtime.epoch import now_us
from tests.services.edge_fleet import CHAT, FakeEngine, dies, eventually, fleet, hangs, status

STREAM = {**CHAT, "stream": True}


def standing(lab, worker: str) -> Standing:
    view = lab.edges["us"].role.fleet
    view.refresh(now_us())
    return Standing(int(view.standing[lab.plan.worker_index(worker)]))


@pytest.mark.parametrize("body", [CHAT, STREAM])
@pytest.mark.parametrize("failure", [dies, status(503), status(502)])
async def test_another_worker_answers(monkeypatch, body, failure):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        lab.behave("us-0", failure)
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.headers["x-kvcompass-worker"] == "us-1"
        assert lab.served() == {"us-0": 1, "us-1": 1}
        assert lab.outcomes() == {"ok": 1}
        assert standing(lab, "us-0") is Standing.SUSPECTED
        await eventually(lab.at_rest)


async def test_a_dead_port_is_avoided(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        await lab.engines["us-0"].stop()
        for _ in range(3):
            answer = await client.post("/v1/chat/completions", json=CHAT)
            assert answer.headers["x-kvcompass-worker"] == "us-1"
        assert lab.metric("us", "retries_total", cause="unreachable") == 1


async def test_no_worker_is_tried_twice_and_attempts_are_bounded(monkeypatch):
    async with fleet(monkeypatch, workers=5, limits=Limits(attempts=3)) as lab, lab.client() as client:
        for i in range(5):
            lab.holds("us", f"us-{i}", 512)
        lab.behave("us", dies)
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 502
        assert answer.json()["error"]["code"] == "upstream_failed"
        assert sorted(lab.served().values()) == [1, 1, 1]
        assert lab.outcomes() == {"engine_failed": 1}
        await eventually(lab.at_rest)


async def test_retry_after_is_honoured(monkeypatch):
    async with fleet(monkeypatch, workers=1, policy="regional") as lab, lab.client() as client:
        lab.behave("us-0", status(503, retry_after="7"))
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "7"
        assert lab.outcomes() == {"no_worker": 1}
        assert standing(lab, "us-0") is Standing.SUSPECTED


@pytest.mark.parametrize("code", [400, 404, 422, 429])
async def test_a_4xx_passes_and_suspects_nobody(monkeypatch, code):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        lab.behave("us-0", status(code, retry_after="3"))
        answer = await client.post("/v1/chat/completions", json=STREAM)
        assert answer.status_code == code
        assert answer.json()["message"] == f"engine says {code}"
        assert answer.headers["retry-after"] == "3"
        assert lab.served() == {"us-0": 1}
        assert lab.outcomes() == {"engine_refused": 1}
        assert standing(lab, "us-0") is Standing.UNKNOWN
        await eventually(lab.at_rest)


async def test_a_500_may_be_the_requests_fault_and_is_not_spread(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.behave("us", status(500))
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 500
        assert sum(lab.served().values()) == 1
        assert lab.outcomes() == {"engine_failed": 1}


async def test_a_break_after_the_first_byte_ends_the_stream_with_an_error(monkeypatch):
    engine = FakeEngine("x")

    async def breaks(request, _parsed):
        response = await engine.begin(request)
        await response.write(engine.chunk("half"))
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    async with fleet(monkeypatch) as lab:
        lab.behave("us", breaks)
        http = httpx.AsyncClient(trust_env=False)
        async with AsyncOpenAI(base_url=lab.base() + "/v1", api_key="x", http_client=http) as client:
            seen = []
            with pytest.raises(APIError, match="failed while it answered"):
                async for chunk in await client.chat.completions.create(**CHAT, stream=True):
                    seen.append(chunk.choices[0].delta.content)  # noqa: PERF401
            assert seen == ["half"]
        assert sum(lab.served().values()) == 1
        assert lab.outcomes() == {"cut": 1}
        await eventually(lab.at_rest)


async def test_silence_before_the_first_byte_is_bounded(monkeypatch):
    timeouts = Timeouts(first_byte_s=0.2, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts, policy="regional") as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        lab.behave("us-0", hangs)
        answer = await client.post("/v1/chat/completions", json=STREAM)
        assert answer.headers["x-kvcompass-worker"] == "us-1"
        await eventually(lambda: lab.engines["us-0"].cancelled == 1)
        lab.behave("us", hangs)
        answer = await client.post("/v1/chat/completions", json=STREAM)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "upstream_timeout")


async def test_the_whole_request_is_bounded(monkeypatch):
    timeouts = Timeouts(total_s=0.3, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts) as lab, lab.client() as client:
        lab.behave("us", hangs)
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 504
        assert lab.outcomes() == {"timeout": 1}
        await eventually(lambda: sum(engine.cancelled for engine in lab.engines.values()) >= 1)
        await eventually(lab.at_rest)


async def test_silence_in_the_middle_is_bounded(monkeypatch):
    engine = FakeEngine("x")

    async def stalls(request, _parsed):
        response = await engine.begin(request)
        await response.write(engine.chunk("half"))
        await asyncio.sleep(30)
        return response

    timeouts = Timeouts(idle_s=0.2, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts) as lab, lab.client() as client:
        lab.behave("us", stalls)
        answer = await client.post("/v1/chat/completions", json=STREAM)
        events = [line for line in answer.text.split("\n\n") if line]
        assert orjson.loads(events[-1][6:])["error"]["code"] == "upstream_failed"
        assert lab.outcomes() == {"cut": 1}


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_a_client_that_leaves_before_the_first_byte_cancels_the_engine(monkeypatch, body):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.behave("us", hangs)
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=body, timeout=0.3)
        await eventually(lambda: sum(engine.cancelled for engine in lab.engines.values()) == 1)
        await eventually(lab.at_rest)
        assert lab.outcomes() == {"cancelled": 1}
        assert sum(lab.served().values()) == 1
        assert {standing(lab, "us-0"), standing(lab, "us-1")} == {Standing.UNKNOWN}


async def test_a_client_that_leaves_in_the_middle_cancels_the_engine(monkeypatch):
    engine = FakeEngine("x")

    async def endless(request, _parsed):
        response = await engine.begin(request)
        while True:
            await response.write(engine.chunk("more"))
            await asyncio.sleep(0.01)

    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.behave("us", endless)
        async with client.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
            async for _ in answer.aiter_bytes():
                break
        await eventually(lambda: sum(engine.cancelled for engine in lab.engines.values()) == 1)
        await eventually(lab.at_rest)
        assert lab.outcomes() == {"cancelled": 1}


async def test_a_stream_cut_at_odd_places_arrives_whole(monkeypatch):
    engine = FakeEngine("x")

    async def drips(request, _parsed):
        response = await engine.begin(request)
        for byte in engine.chunk("héllo") + engine.usage_chunk() + b"data: [DONE]\n\n":
            await response.write(bytes([byte]))
        return response

    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.behave("us", drips)
        answer = await client.post("/v1/chat/completions", json=STREAM)
        assert answer.content == engine.chunk("héllo") + b"data: [DONE]\n\n"


async def test_an_answer_too_large_to_hold_is_not_made_again(monkeypatch):
    async with fleet(monkeypatch, limits=Limits(answer_bytes=10)) as lab, lab.client() as client:
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "answer_too_large")
        assert sum(lab.served().values()) == 1
        assert standing(lab, "us-0") is standing(lab, "us-1") is Standing.UNKNOWN


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_a_worker_that_hangs_costs_one_bound_whatever_is_asked(monkeypatch, body):
    timeouts = Timeouts(first_byte_s=0.2, answer_s=0.2, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts) as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        lab.behave("us-0", hangs)
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.headers["x-kvcompass-worker"] == "us-1"


async def test_headers_do_not_wind_the_clock_up_again(monkeypatch):
    engine = FakeEngine("x")

    async def late_and_empty(request, _parsed):
        await asyncio.sleep(0.3)
        response = await engine.begin(request)
        await asyncio.sleep(0.3)
        await response.write(engine.chunk("late"))
        return response

    timeouts = Timeouts(first_byte_s=0.5, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts) as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        lab.behave("us-0", late_and_empty)
        answer = await client.post("/v1/chat/completions", json=STREAM)
        assert answer.headers["x-kvcompass-worker"] == "us-1"


async def test_bytes_of_a_foreign_header_pass(monkeypatch):
    async def foreign(_request, _parsed):
        return web.json_response({}, headers={"x-served-by": "Größe"})

    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.behave("us", foreign)
        answer = await client.post("/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        assert dict(answer.headers.raw)[b"x-served-by"] == "Größe".encode()


async def test_a_client_that_stops_reading_is_given_up(monkeypatch):
    engine = FakeEngine("x")

    async def endless(request, _parsed):
        response = await engine.begin(request)
        while True:
            await response.write(engine.chunk("more" * 10_000))

    timeouts = Timeouts(total_s=0.3, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, timeouts=timeouts) as lab:
        lab.behave("us", endless)
        _reader, writer = await asyncio.open_connection("127.0.0.1", lab.edges["us"].public_server.port)
        writer.transport.pause_reading()
        body = orjson.dumps(STREAM)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        await eventually(lambda: lab.outcomes() == {"cut": 1})
        await eventually(lab.at_rest)
        writer.transport.abort()
