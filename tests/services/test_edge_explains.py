"""The decision explained, the state shown, readiness that tells the truth, an orderly end."""

import asyncio

import pytest

from kvcompass.fleet.load import WorkerLoad, WorkerState
from services.runtime.epoch import now_us
from tests.services.edge_fleet import CHAT, MODEL, eventually, fleet


async def test_the_decision_without_forwarding(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "us-1", 512)
        long = {"model": MODEL, "prompt": list(range(2_000))}
        told = (await client.post("/v1/kvcompass/route", json=long)).json()
        assert lab.served() == {}
        assert told["chosen"] == "us-1"
        assert told["claim"] == 512
        assert told["tier"] == "VRAM"
        assert told["prompt_tokens"] == 2_000
        assert told["lengths"][0] == 128
        assert told["lengths"][-1] < 2_000
        assert told["blind"] is True
        assert told["shards_not_exact"] == {"0": "absent"}
        assert {worker["worker"] for worker in told["workers"]} == {w.id for w in lab.plan.workers}
        assert told["runners_up"][0] in {w.id for w in lab.plan.workers} - {"us-1"}
        first = told["workers"][0]
        names = ("wan_charge_ms", "queue_ms", "recompute_ms", "reload_ms", "decode_ms")
        terms = sum(first[name] for name in names)
        assert abs(first["score_ms"] - terms) < 1e-6
        answer = await client.post("/v1/completions", json=long)
        assert answer.headers["x-kvcompass-worker"] == told["chosen"]


async def test_what_a_batch_costs_is_told_for_the_answer_that_is_asked_for(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        role = lab.edges["us"].role
        role.fleet.report(0, WorkerLoad("us-0", WorkerState.READY, 0.0, used_tokens=80_000), now_us())
        prompt = {"model": MODEL, "prompt": list(range(200))}
        costs = {}
        for tokens in (1, 10, 9_000):
            body = {**prompt, "max_tokens": tokens}
            told = (await client.post("/v1/kvcompass/route", json=body)).json()["workers"]
            costs[tokens] = {each["worker"]: each["decode_ms"] for each in told}["us-0"]
        each = 80_000 * lab.plan.workers[0].context_ms_per_token
        assert costs == pytest.approx({1: each, 10: 10 * each, 9_000: lab.plan.routing.decode_tokens * each})
        state = (await client.get("/v1/kvcompass/state")).json()["workers"]
        assert {each["worker"]: each["context_tokens"] for each in state}["us-0"] == 80_000


async def test_a_request_is_sent_by_the_answer_that_it_asks_for(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "us-0", 1_024)
        load = WorkerLoad("us-0", WorkerState.READY, 0.0, used_tokens=400_000)
        for tokens, worker in ((1, "us-0"), (9_000, "us-1")):
            for each in lab.plan.workers:
                told = load if each.id == "us-0" else load._replace(worker_id=each.id, used_tokens=0)
                lab.edges["us"].role.fleet.report(lab.plan.worker_index(each.id), told, now_us())
            body = {"model": MODEL, "prompt": list(range(2_000)), "max_tokens": tokens}
            answer = await client.post("/v1/completions", json=body)
            assert answer.headers["x-kvcompass-worker"] == worker


async def test_route_takes_chat_bodies_and_refuses_bad_ones(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        assert (await client.post("/v1/kvcompass/route", json=CHAT)).json()["chosen"]
        bad = await client.post("/v1/kvcompass/route", json={**CHAT, "model": "other"})
        assert bad.json()["error"]["code"] == "model_not_found"
        salted = (await client.post("/v1/kvcompass/route", json={**CHAT, "cache_salt": "x"})).json()
        assert salted["unkeyed"] == "own_cache"
        assert salted["lengths"] == []
        assert lab.outcomes() == {}


async def test_with_nowhere_to_go_it_tells_how_every_worker_stands(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        role = lab.edges["us"].role
        for worker in range(len(role.fleet)):
            report = WorkerLoad(role.fleet.worker_ids[worker], WorkerState.DRAINING, 0.0)
            role.fleet.report(worker, report, now_us())
        told = (await client.post("/v1/kvcompass/route", json=CHAT)).json()
        assert (told["chosen"], told["reason"], told["policy"]) == (None, "none_live", "kvcompass")
        assert [worker["worker"] for worker in told["workers"]] == [w.id for w in lab.plan.workers]
        assert {worker["state"] for worker in told["workers"]} == {"draining"}
        assert {worker["standing"] for worker in told["workers"]} == {"out"}


async def test_not_ready_until_the_shards_are_loaded(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        answer = await client.get("/ready")
        assert answer.status_code == 503
        assert answer.json()["reasons"] == ["shard 0 is not loaded"]
        health = await client.get("/health")
        assert (health.status_code, health.json()["state"]) == (200, "starting")
        state = (await client.get("/v1/kvcompass/state")).json()
        assert state["shards"][0]["state"] == "absent"
        assert int(state["shards"][0]["digest"], 16) == lab.edges["us"].followers[0].digest
        assert {worker["worker"] for worker in state["workers"]} == {w.id for w in lab.plan.workers}
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        assert lab.metric("us", "blind_decisions_total") == 1


async def test_not_warm_not_served(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.edges["us"].readiness.warm = False
        for url in ("/v1/chat/completions", "/v1/kvcompass/route"):
            answer = await client.post(url, json=CHAT)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
        assert lab.outcomes() == {"overloaded": 1}


async def test_a_request_under_way_is_drained(monkeypatch):
    async def slow(request, parsed):
        await asyncio.sleep(0.4)
        return await lab.engines["us-0"].good(request, parsed)

    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.behave("us", slow)
        request = asyncio.create_task(client.post("/v1/chat/completions", json=CHAT))
        await eventually(lambda: lab.served() != {})
        lab.lifecycles["us"].stop()
        await eventually(lambda: "draining" in lab.edges["us"].readiness.reasons())
        assert (await request).status_code == 200


async def test_metrics_can_be_scraped(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        await client.post("/v1/chat/completions", json=CHAT)
        answer = await client.get(f"http://127.0.0.1:{lab.edges['us'].ops.port}/metrics")
        for line in (
            'kvcompass_edge_requests_total{outcome="ok",route="chat"} 1.0',
            'kvcompass_edge_view_state{shard="0",state="absent"} 1.0',
            'kvcompass_edge_worker_belief{worker="asia-0",worker_region="asia"} 1.0',
            "kvcompass_edge_ready 0.0",
            'kvcompass_edge_requests_total{outcome="timeout",route="chat"} 0.0',
            'kvcompass_edge_wrong_claims_total{worker="asia-0"} 0.0',
            'kvcompass_edge_retries_total{cause="status_503"} 0.0',
        ):
            assert line in answer.text


async def test_every_count_of_the_role_begins_at_nothing(monkeypatch):
    async with fleet(monkeypatch, predicted=("us-1",)) as lab:
        workers = {worker.id: 0.0 for worker in lab.plan.workers}
        assert lab.counted("us", "blind_decisions_total") == {"": 0}
        assert lab.counted("us", "wrong_claims_total") == workers
        assert lab.counted("us", "wrong_predictions_total") == {"us-1": 0}
        assert lab.counted("us", "cross_region_hits_total") == {"eu": 0, "asia": 0}


async def test_a_decision_that_leads_to_no_attempt_is_counted_in_the_metric_as_in_the_state(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        lab.holds("us", "eu-1", 8_192)
        for worker in ("us-0", "us-1", "asia-0", "asia-1"):
            lab.edges["us"].role.fleet.suspect(lab.plan.worker_index(worker), 1 << 62)
        # The edge of eu cannot be reached; then all are suspected, eu wins again, and has no other edge.
        answer = await client.post("/v1/completions", json={"model": MODEL, "prompt": [7] * 9_000})
        assert (answer.status_code, answer.headers["x-kvcompass-region"]) == (200, "us")
        state = (await client.get("/v1/kvcompass/state")).json()
        assert state["blind_decisions"] == 3
        assert lab.metric("us", "blind_decisions_total") == 3


async def test_the_way_is_charged_there_and_back_and_told_one_way(monkeypatch):
    async with fleet(monkeypatch) as lab, lab.client() as client:
        told = (await client.post("/v1/kvcompass/route", json=CHAT)).json()
        charged = {worker["worker"]: worker["wan_charge_ms"] for worker in told["workers"]}
        state = (await client.get("/v1/kvcompass/state")).json()
        one_way = {worker["worker"]: worker["wan_ms"] for worker in state["workers"]}
        assert charged == {worker: 2 * wan_ms for worker, wan_ms in one_way.items()}
        assert len(set(one_way.values())) == 3
