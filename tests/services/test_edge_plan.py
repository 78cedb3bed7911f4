"""A running edge takes the next version of its plan between two requests."""

import asyncio
import json
from dataclasses import replace

from aiohttp import web

from kvcompass.plan import dump_plan
from kvcompass.plan.model import Plan
from kvcompass.plan.rollout import Phase
from services.runtime.plan_signature import sign
from tests.models.ports import free_address
from tests.services.edge_fleet import CHAT, Fleet, eventually, fleet

KEY = "a key of many letters"
STREAM = {**CHAT, "stream": True}


async def bring(lab: Fleet, plan: Plan, edge: str = "us") -> tuple[int, dict]:
    body = dump_plan(plan).encode()
    status, answer = await lab.edges[edge]._desk.bring("settle", sign(KEY, Phase.SETTLE, body), body)
    return status, json.loads(answer)


def without(plan: Plan, worker: str) -> Plan:
    return replace(plan, plan_version=2, workers=tuple(w for w in plan.workers if w.id != worker))


async def test_an_answer_under_way_is_whole_though_its_worker_leaves(monkeypatch):
    async with fleet(monkeypatch, plan_key=KEY) as lab, lab.client() as client:
        lab.holds("us", "us-0", 512)
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def slow(request: web.Request, parsed: dict) -> web.StreamResponse:
            engine = lab.engines["us-0"]
            response = await engine.begin(request)
            await response.write(engine.chunk("first "))
            begun.set()
            await goes_on.wait()
            await response.write(engine.chunk("last"))
            await response.write(b"data: [DONE]\n\n")
            return response

        lab.behave("us-0", slow)
        answer = asyncio.create_task(client.post("/v1/chat/completions", json=STREAM))
        await begun.wait()
        assert (await bring(lab, without(lab.plan, "us-0")))[0] == 200
        goes_on.set()
        assert (await answer).text.endswith("data: [DONE]\n\n")
        assert "last" in (await answer).text
        after = await client.post("/v1/chat/completions", json=CHAT)
        assert after.headers["x-kvcompass-worker"] == "us-1"
        assert lab.outcomes() == {"ok": 2}
        await eventually(lab.at_rest)
        state = (await client.get("/v1/kvcompass/state")).json()
        assert state["plan_version"] == 2
        assert "us-0" not in [worker["worker"] for worker in state["workers"]]
        assert lab.metric("us", "worker_queue_ms", worker="us-1", worker_region="us") is not None


async def test_an_edge_that_has_left_says_so_and_serves_whoever_comes(monkeypatch):
    async with fleet(monkeypatch, plan_key=KEY) as lab, lab.client() as client:
        other = replace(
            lab.plan.edges[0], id="us-2", peer_address=free_address(), grpc_address=free_address()
        )
        left = replace(
            lab.plan, plan_version=2, edges=(replace(other, address=free_address()), *lab.plan.edges[1:])
        )
        assert (await bring(lab, left))[0] == 200
        ready = await client.get("/ready")
        assert ready.status_code == 503
        assert "this edge has left the plan: end it" in ready.json()["reasons"]
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_an_address_that_needs_tls_is_refused_and_nothing_is_changed(monkeypatch):
    async with fleet(monkeypatch, plan_key=KEY) as lab:
        edge = lab.edges["us"]
        before = edge.role.fleet.plan
        places = {
            name: f"eu.example.net:{i}"
            for i, name in enumerate(("address", "peer_address", "grpc_address"), 1)
        }
        far = replace(lab.plan.edges[1], id="eu-2", **places)
        status, facts = await bring(lab, replace(lab.plan, plan_version=2, edges=(*lab.plan.edges, far)))
        assert (status, facts["refused"]["field"]) == (409, "tls")
        assert edge.role.fleet.plan is before
        assert facts["plan_version"] == 1


async def test_load_is_told_to_an_edge_that_joins_and_to_none_that_has_left(monkeypatch):
    async with fleet(monkeypatch, plan_key=KEY) as lab:
        edge = lab.edges["us"]
        await eventually(lambda: set(edge._broadcaster._streams) == {"eu", "asia"})
        await eventually(lambda: set(edge._broadcaster._lost) == {"eu", "asia"})
        new = replace(
            lab.plan.edges[1],
            id="eu-2",
            address=free_address(),
            peer_address=free_address(),
            grpc_address=free_address(),
        )
        old = edge._broadcaster._streams["asia"]
        joined = replace(lab.plan, plan_version=2, edges=(lab.plan.edges[0], new, lab.plan.edges[2]))
        assert (await bring(lab, joined))[0] == 200
        assert set(edge._broadcaster._streams) == {"eu-2", "asia"}
        assert edge._broadcaster._streams["asia"] is old
        assert "eu" not in edge._broadcaster._lost, "why an edge was lost is forgotten with it"
        assert set(edge.role.broadcasts_due(1 << 60)) == {"eu-2", "asia"}


async def test_what_a_worker_that_has_left_did_is_counted_on(monkeypatch):
    async with fleet(monkeypatch, plan_key=KEY) as lab, lab.client() as client:
        lab.holds("us", "us-0", 100)
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200
        await eventually(lab.at_rest)
        new = replace(
            lab.plan.workers[0], id="us-2", slot=7, url="http://127.0.2.1:9", events="ipc:///nowhere"
        )
        rest = without(lab.plan, "us-0")
        assert (await bring(lab, replace(rest, workers=(*rest.workers, new))))[0] == 200
        assert lab.counted("us", "wrong_claims_total") == {
            "us-0": 1,
            "us-1": 0,
            "us-2": 0,
            "eu-0": 0,
            "eu-1": 0,
            "asia-0": 0,
            "asia-1": 0,
        }
        assert (await client.get("/v1/kvcompass/state")).json()["wrong_claims"] == 1
