"""Two edges: a request crosses regions once, siblings step in, load travels with answers and by itself."""

import asyncio
from dataclasses import replace

import httpx
import pytest
from aiohttp import web

from kvcompass.fleet.load import WorkerLoad, WorkerState
from kvcompass.fleet.view import Standing
from kvcompass.roles.messages import AgentLoad
from services.edge.fleet import load_broadcaster, load_service
from services.edge.fleet.piggyback import pack_load, unpack_load
from services.edge.settings import Limits, Timeouts
from services.runtime.epoch import now_us
from services.runtime.grpc_transport import Dialer
from services.wire.rpc import read, report_load
from tests.models.routing_fleets import region_load
from tests.services.edge_fleet import CHAT, PEER_KEY, FakeEngine, dies, eventually, fleet, hangs, status

PAIR = ("us", "eu")
STREAM = {**CHAT, "stream": True}
LONG = {"model": "model", "prompt": [7] * 9_000}


def hop(worker: str, origin: str = "us", key: str = PEER_KEY) -> dict[str, str]:
    headers = {"x-kvcompass-worker": worker, "x-kvcompass-origin": origin, "x-kvcompass-prompt-tokens": "100"}
    return {**headers, "authorization": f"Bearer {key}"}


@pytest.mark.parametrize("body", [CHAT, STREAM])
async def test_a_request_goes_to_the_region_that_holds_it(monkeypatch, body):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.engines["eu-1"].cached_tokens = 8_192
        ids = {**body, "messages": [{"role": "user", "content": "word " * 9_000}]}
        answer = await client.post("/v1/chat/completions", json=ids)
        assert answer.status_code == 200
        assert answer.headers["x-kvcompass-worker"] == "eu-1"
        assert answer.headers["x-kvcompass-region"] == "eu"
        assert "x-kvcompass-load" not in answer.headers
        assert b'"usage"' not in answer.content or body is CHAT
        assert lab.served() == {"eu-1": 1}
        seen = lab.engines["eu-1"].headers[0]
        assert not [name for name in seen if name.startswith("x-kvcompass") or name == "authorization"]
        assert seen["x-request-id"] == answer.headers["x-request-id"]
        assert lab.metric("us", "cross_region_hits_total", worker_region="eu") == 1
        assert lab.metric("eu", "peer_requests_total", origin="us", outcome="ok") == 1
        assert lab.metric("us", "loads_total", source="piggyback", use="accepted") == 1
        await eventually(lab.at_rest)


async def test_a_sibling_steps_in_at_the_far_edge(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu-1", dies)
        prompt = LONG
        answer = await client.post("/v1/completions", json=prompt)
        assert answer.headers["x-kvcompass-worker"] == "eu-0"
        assert lab.served() == {"eu-1": 1, "eu-0": 1}
        assert lab.metric("eu", "peer_moves_total") == 1
        assert lab.metric("us", "wrong_claims_total", worker="eu-1") == 0
        assert float(lab.edges["us"].role.fleet.beliefs.values.min()) == 1.0
        standing = {w["worker"]: w["standing"] for w in lab.edges["us"].role.state(now_us())["workers"]}
        assert (standing["eu-1"], standing["eu-0"]) == ("suspected", "unknown")
        await eventually(lab.at_rest)


@pytest.mark.parametrize("failure", [dies, status(503)])
async def test_a_dead_region_is_left_after_one_hop(monkeypatch, failure):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu", failure)
        answer = await client.post("/v1/completions", json=LONG)
        assert answer.status_code == 200
        assert answer.headers["x-kvcompass-region"] == "us"
        assert lab.served()["eu-0"] == lab.served()["eu-1"] == 1
        await eventually(lab.at_rest)


async def test_what_the_far_edge_itself_refuses_is_not_the_clients_business(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.edges["eu"].peer._key = "another-key-another-key"
        lab.holds("us", "eu-1", 8_192)
        answer = await client.post("/v1/completions", json=LONG)
        assert answer.status_code == 200
        assert answer.headers["x-kvcompass-region"] == "us"
        assert lab.metric("us", "retries_total", cause="status_401") == 1
        for first in (1, 2, 3):
            other = {**LONG, "prompt": [first, *LONG["prompt"]]}
            answer = await client.post("/v1/completions", json=other)
            assert (answer.status_code, answer.headers["x-kvcompass-region"]) == (200, "us")
        assert lab.metric("us", "retries_total", cause="status_401") == 1, (
            "an edge of another key is not asked again at once"
        )


async def test_an_engines_4xx_passes_both_edges(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu", status(422))
        answer = await client.post("/v1/completions", json=LONG)
        assert answer.status_code == 422
        assert answer.json()["message"] == "engine says 422"
        assert lab.served() == {"eu-1": 1}


async def test_an_unreachable_edge_costs_one_try_and_is_remembered(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "asia-0", 8_192)
        for _ in range(3):
            answer = await client.post("/v1/completions", json=LONG)
            assert answer.headers["x-kvcompass-region"] == "us"
        assert lab.metric("us", "retries_total", cause="unreachable") == 1


async def test_leaving_cancels_the_engine_two_edges_away(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu-1", hangs)
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/completions", json=LONG, timeout=0.5)
        await eventually(lambda: lab.engines["eu-1"].cancelled == 1)
        await eventually(lab.at_rest)
        assert lab.outcomes("us") == {"cancelled": 1}
        assert lab.metric("eu", "peer_requests_total", origin="us", outcome="cancelled") == 1


async def test_a_break_two_edges_away_is_seen_as_one(monkeypatch):
    engine = FakeEngine("x")

    async def breaks(request, _parsed):
        response = await engine.begin(request)
        await response.write(engine.chunk("half"))
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu-1", breaks)
        answer = await client.post(
            "/v1/completions", json={"model": "model", "prompt": [7] * 9_000, "stream": True}
        )
        assert answer.content.startswith(engine.chunk("half"))
        assert b'"error"' in answer.content
        assert lab.outcomes("us") == {"cut": 1}
        assert lab.metric("eu", "peer_requests_total", origin="us", outcome="cut") == 1


async def test_a_worker_that_dies_in_the_middle_leaves_its_siblings_alone(monkeypatch):
    async def breaks(request, _parsed):
        response = await FakeEngine("x").begin(request)
        await response.write(FakeEngine("x").chunk("half"))
        await asyncio.sleep(0.05)
        request.transport.abort()
        return response

    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu-1", breaks)
        await client.post("/v1/completions", json={**LONG, "stream": True})
        assert lab.outcomes("us") == {"cut": 1}
        view = lab.edges["us"].role.fleet
        view.refresh(now_us())
        assert view.standing_of(lab.plan.worker_index("eu-1")) is Standing.SUSPECTED
        assert view.standing_of(lab.plan.worker_index("eu-0")) is not Standing.SUSPECTED


@pytest.mark.parametrize("stream", [False, True])
async def test_the_far_edge_moves_a_request_away_from_a_worker_that_hangs(monkeypatch, stream):
    timeouts = Timeouts(first_byte_s=0.3, answer_s=0.3, unready_s=0, drain_s=1)
    async with fleet(monkeypatch, regions=PAIR, timeouts=timeouts) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu-1", hangs)
        answer = await client.post("/v1/completions", json={**LONG, "stream": stream})
        assert answer.headers["x-kvcompass-worker"] == "eu-0"
        assert lab.metric("eu", "peer_moves_total") == 1
        assert lab.outcomes("us") == {"ok": 1}


async def test_a_stream_without_events_blames_the_worker_and_not_the_edge(monkeypatch):
    async def empty(request, _parsed):
        return await FakeEngine("x").begin(request)

    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("eu-1", empty)
        answer = await client.post("/v1/completions", json={**LONG, "stream": True})
        assert answer.headers["x-kvcompass-worker"] == "eu-0"
        assert lab.edges["us"].role.fleet.standing_of(lab.plan.worker_index("eu-0")) is not Standing.SUSPECTED


async def test_siblings_are_tried_on_the_requests_own_budget(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR, workers=4) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        lab.behave("", dies)
        answer = await client.post("/v1/completions", json=LONG)
        assert answer.status_code == 502
        served = lab.served()
        assert sum(served.values()) == Limits().attempts
        assert sum(count for worker, count in served.items() if worker.startswith("eu")) == 2


async def test_an_answer_too_large_for_the_far_edge_is_not_made_again(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR, limits=Limits(answer_bytes=10)) as lab:
        async with lab.client() as client:
            lab.holds("us", "eu-1", 8_192)
            answer = await client.post("/v1/completions", json=LONG)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "answer_too_large")
        assert lab.served() == {"eu-1": 1}


async def test_nobody_but_the_edge_asked_tells_its_regions_load(monkeypatch):
    forged = region_load("eu", "eu", 99, 1, (worker_load("eu-0", 5.0),))

    async def engine(request, parsed):
        return web.json_response({}, headers={"x-kvcompass-load": pack_load(forged).decode()})

    async with fleet(monkeypatch, regions=("us",)) as lab, lab.client() as client:
        lab.behave("us", engine)
        assert (await client.post("/v1/completions", json=LONG)).status_code == 200
        assert lab.edges["us"].role.fleet.load_of(lab.plan.worker_index("eu-0"), now_us()) is None
        assert lab.metric("us", "loads_total", source="piggyback", use="accepted") == 0


async def test_an_edge_tells_no_other_edges_load(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR) as lab, lab.client() as client:
        lab.edges["eu"].role.edge_id = "asia"
        lab.edges["eu"].role.region = "asia"
        lab.holds("us", "eu-1", 8_192)
        assert (await client.post("/v1/completions", json=LONG)).status_code == 200
        assert lab.metric("us", "loads_total", source="piggyback", use="unknown_sender") == 1
        assert lab.metric("us", "loads_total", source="piggyback", use="accepted") == 0


async def test_a_full_far_edge_still_tells_its_load(monkeypatch):
    async with fleet(monkeypatch) as lab, httpx.AsyncClient(base_url=lab.peer("us"), trust_env=False) as peer:
        lab.edges["us"].peer._limits = Limits(concurrent_requests=0)
        answer = await peer.post("/v1/chat/completions", json=CHAT, headers=hop("us-0", "eu"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "overloaded")
        assert unpack_load(answer.headers["x-kvcompass-load"]).region == "us"
        assert answer.headers["x-kvcompass-attempts"] == "0"


async def test_the_peer_listener_keeps_strangers_and_loops_out(monkeypatch):
    async with fleet(monkeypatch) as lab, httpx.AsyncClient(base_url=lab.peer("us"), trust_env=False) as peer:
        url = "/v1/chat/completions"

        async def code(headers, path=url):
            answer = await peer.post(path, json=CHAT, headers=headers)
            return answer.status_code, answer.json()["error"]["code"]

        assert await code({}) == (401, "invalid_api_key")
        assert await code(hop("us-0", "eu", key="wrong-key-wrong-key")) == (401, "invalid_api_key")
        assert await code(hop("eu-0", "eu")) == (503, "no_worker")
        assert await code(hop("us-0", "us")) == (503, "no_worker")
        assert await code(hop("us-0", "mars")) == (503, "no_worker")
        assert await code(hop("us-0", "eu"), "/v1/models") == (404, "unknown_url")
        assert lab.served() == {}
        answer = await peer.post(url, json=CHAT, headers=hop("us-0", "eu"))
        assert answer.status_code == 200
        assert answer.headers["x-kvcompass-worker"] == "us-0"
        assert unpack_load(answer.headers["x-kvcompass-load"]).region == "us"


def worker_load(worker: str, queue_ms: float) -> WorkerLoad:
    return WorkerLoad(worker, WorkerState.READY, queue_ms, 1, 0, 10, 100, 0.2, 0)


async def test_load_reaches_the_own_edge_and_then_the_others(monkeypatch):
    async with fleet(monkeypatch, regions=PAIR) as lab:
        us, eu = lab.edges["us"], lab.edges["eu"]
        async with Dialer({}).channel(us.place.grpc_address) as channel:
            call = report_load(channel)()
            await call.write(
                AgentLoad(replace(us._handshake, component_id="us-0"), 9, 1, worker_load("us-0", 123.0))
            )
            reply = await asyncio.wait_for(read(call), 5)
            assert reply.sequence == 1
            await call.write(AgentLoad(None, 9, 2, worker_load("us-0", 77.0)))
            await eventually(lambda: us.role.fleet.queue_ms[0] == 77.0)
            await eventually(lambda: eu.role.fleet.load_of(0, now_us()) is not None)
            assert us.role.fleet.load_of(1, now_us()) is None
            call.cancel()


async def test_a_stream_without_the_right_handshake_is_refused(monkeypatch):
    async with fleet(monkeypatch) as lab:
        us = lab.edges["us"]
        wrong = type(us._handshake)("us-0", 9, 1, 1, {**us._handshake.layout, "quantum": "64"})
        async with Dialer({}).channel(us.place.grpc_address) as channel:
            other = replace(us._handshake, component_id="us-1")
            for handshake, field in ((None, "handshake"), (wrong, "quantum"), (other, "component_id")):
                call = report_load(channel)()
                await call.write(AgentLoad(handshake, 9, 1, worker_load("us-0", 1.0)))
                refusal = await asyncio.wait_for(read(call), 5)
                assert refusal.field == field
        assert us.role.fleet.load_of(0, now_us()) is None


async def test_a_load_stream_that_never_speaks_is_ended(monkeypatch):
    monkeypatch.setattr(load_service, "_FIRST_S", 0.1)
    async with fleet(monkeypatch) as lab:
        async with Dialer({}).channel(lab.edges["us"].place.grpc_address) as channel:
            refusal = await asyncio.wait_for(read(report_load(channel)()), 5)
        assert refusal.field == "stream"


async def test_nonsense_on_a_load_stream_is_counted_and_refused(monkeypatch):
    async with fleet(monkeypatch) as lab:
        us = lab.edges["us"]
        async with Dialer({}).channel(us.place.grpc_address) as channel:
            raw = channel.stream_stream("/kvcompass.v1.LoadExchange/ReportLoad")()
            await raw.write(b"\xff\xff")
            assert b"AgentLoad" in await asyncio.wait_for(raw.read(), 5)
            call = report_load(channel)()
            await call.write(
                AgentLoad(replace(us._handshake, component_id="us-0"), 9, 1, worker_load("us-0", 1.0))
            )
            assert (await asyncio.wait_for(read(call), 5)).sequence == 1
            await call.write(AgentLoad(None, 9, 2, worker_load("us-1", 1.0)))
            assert (await asyncio.wait_for(read(call), 5)).field == "load"
        assert lab.metric("us", "loads_total", source="agent", use="malformed") == 2
        assert us.role.fleet.load_of(1, now_us()) is None


async def test_a_peer_to_which_nothing_is_due_is_not_lost(monkeypatch):
    monkeypatch.setattr(load_broadcaster, "_REPLY_S", 0.05)
    async with fleet(monkeypatch, regions=PAIR) as lab:
        plan, us = lab.plan, lab.edges["us"]
        broadcaster = load_broadcaster.LoadBroadcaster(
            plan, "us", us.role, us._handshake, Dialer({}), us.metrics
        )
        async with Dialer({}).channel(plan.edges[1].grpc_address) as channel:
            stream = asyncio.create_task(broadcaster._stream(channel, "eu"))
            await asyncio.sleep(0.2)
            assert not stream.done()
            stream.cancel()
