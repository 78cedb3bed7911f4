"""Several data-parallel ranks: each with a cache, events and a load of its own."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.mock_sglang.events.endpoints import rank_endpoint
from services.runtime.settings import SettingsError
from tests.services.mock_engine_rig import running

IDS = list(range(100, 200))


async def test_a_rank_is_pinned_and_its_cache_is_its_own() -> None:
    async with running(dp_size=3) as rig:
        assert await rig.cached(IDS, routed_dp_rank=1) == 0
        assert await rig.cached(IDS, routed_dp_rank=0) == 0
        assert await rig.cached(IDS, routed_dp_rank=1) == 96
        assert await rig.cached(IDS, data_parallel_rank=0) == 96, "the older name"
        meta = (await rig.generate(IDS, routed_dp_rank=2)).json()["meta_info"]
        assert (meta["dp_rank"], meta["cached_tokens"]) == (2, 0)


async def test_the_header_of_the_openai_routes_goes_before_the_body() -> None:
    body = {"model": "m", "prompt": IDS, "max_tokens": 1, "routed_dp_rank": 0}
    pinned = {"x-data-parallel-rank": "1"}
    async with running(dp_size=2) as rig:
        (await rig.client.post("/v1/completions", json=body, headers=pinned)).raise_for_status()
        assert await rig.cached(IDS, routed_dp_rank=1) == 96
        assert await rig.cached(IDS, routed_dp_rank=0) == 0
        wrong = {"x-data-parallel-rank": "first"}
        refused = await rig.client.post("/v1/completions", json=body, headers=wrong)
    assert (refused.status_code, refused.json()["message"][:36]) == (
        400,
        "Invalid X-Data-Parallel-Rank header:",
    )


async def test_others_take_turns() -> None:
    async with running(dp_size=3) as rig:
        ranks = [(await rig.generate(IDS)).json()["meta_info"]["dp_rank"] for _ in range(5)]
        pinned = (await rig.generate(IDS, routed_dp_rank=2)).json()["meta_info"]["dp_rank"]
        after = (await rig.generate(IDS)).json()["meta_info"]["dp_rank"]
    assert ranks == [0, 1, 2, 0, 1]
    assert (pinned, after) == (2, 2), "a pinned request takes nobody's turn"


@pytest.mark.parametrize("rank", [-1, 3])
async def test_a_rank_that_is_not_there_is_refused_as_sglang_does(rank: int) -> None:
    async with running(dp_size=3) as rig:
        response = await rig.generate(IDS, routed_dp_rank=rank)
    assert response.status_code == 400
    assert response.json()["message"] == f"routed_dp_rank={rank} out of range [0, 3)"


async def test_one_rank_tells_no_rank() -> None:
    async with running() as rig:
        assert (await rig.generate(IDS, routed_dp_rank=0)).json()["meta_info"]["dp_rank"] is None


async def test_every_rank_publishes_under_its_number() -> None:
    async with running(dp_size=2) as rig, rig.listening(0) as first, rig.listening(1) as second:
        await rig.generate(IDS, routed_dp_rank=1)
        await second.hear_stored(IDS)
        assert all(batch.body[2] == 1 for batch in second.seen)
        assert [event.kind for event in first.events()] in ([], ["AllBlocksCleared"]), "flushed once more"
        assert (await first.replay(0))[0].body[2] == 0


async def test_loads_and_metrics_have_an_entry_a_rank() -> None:
    async with running(dp_size=2) as rig:
        await rig.generate(IDS, routed_dp_rank=1)
        loads = await rig.loads()
        assert [load["dp_rank"] for load in loads] == [0, 1]
        text = (await rig.client.get("/metrics")).text
        info = (await rig.client.get("/server_info")).json()
    assert 'sglang:prompt_tokens_total{model_name="m",dp_rank="0"} 0\n' in text
    assert 'sglang:prompt_tokens_total{model_name="m",dp_rank="1"} 100\n' in text
    assert (info["dp_size"], info["kvcompass_mock"]["prompt_tokens"]) == (2, 100)


async def test_a_model_may_have_any_name_in_the_metrics() -> None:
    async with running(model='a "b"\\c') as rig:
        text = (await rig.client.get("/metrics")).text
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    assert {sample.labels["model_name"] for sample in samples} == {'a "b"\\c'}


def test_a_rank_has_the_port_of_its_number() -> None:
    assert rank_endpoint("tcp://*:5557", 2, "event_endpoint") == "tcp://*:5559"
    assert rank_endpoint("tcp://127.0.0.1:*", 2, "event_endpoint") == "tcp://127.0.0.1:*"
    assert rank_endpoint("", 2, "event_endpoint") == ""
    assert rank_endpoint("ipc:///tmp/x", 0, "event_endpoint") == "ipc:///tmp/x"
    with pytest.raises(SettingsError) as caught:
        rank_endpoint("ipc:///tmp/x", 1, "event_endpoint")
    assert caught.value.field == "event_endpoint"
