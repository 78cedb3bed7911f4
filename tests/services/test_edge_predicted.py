"""Through a running edge: a worker without events gets back what it was sent, and the answer says why."""

from services.runtime.epoch import now_us
from tests.models.routing_fleets import load
from tests.services.edge_fleet import MODEL, eventually, fleet

PROMPT = {"model": MODEL, "prompt": [7] * 3_000}


async def test_a_prompt_goes_back_to_where_it_was_sent(monkeypatch):
    async with fleet(monkeypatch, predicted=("us-0", "us-1")) as lab, lab.client() as client:
        for worker in (0, 1):
            lab.edges["us"].role.fleet.report(worker, load(f"us-{worker}"), now_us())
        first = await client.post("/v1/completions", json=PROMPT)
        worker = first.headers["x-kvcompass-worker"]
        told = (await client.post("/v1/kvcompass/route", json=PROMPT)).json()
        assert (told["chosen"], told["reason"], told["claim"]) == (worker, "approximate_match", 0)
        assert told["expected_tokens"] > 2_000
        approximate = {each["worker"] for each in told["workers"] if each["approximate"]}
        assert approximate == {"us-0", "us-1"}

        lab.engines[worker].cached_tokens = 64
        again = await client.post("/v1/completions", json=PROMPT)
        assert (again.headers["x-kvcompass-worker"], again.headers["x-kvcompass-match-tokens"]) == (
            worker,
            "0",
        )
        await eventually(lab.at_rest)
        assert lab.metric("us", "wrong_predictions_total", worker=worker) == 1
        assert lab.metric("us", "wrong_claims_total", worker=worker) == 0
        assert lab.metric("us", "decisions_total", reason="approximate_match", worker_region="us") == 1
        assert lab.metric("us", "worker_predicted_keys", worker=worker, worker_region="us") > 0
        state = (await client.get("/v1/kvcompass/state")).json()
        (shown,) = [each for each in state["workers"] if each["worker"] == worker]
        assert shown["approximate"] and shown["predicted_keys"] > 0 and shown["belief"] < 1
        assert state["wrong_predictions"] == 1
