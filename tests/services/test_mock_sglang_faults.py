"""Faults of the double: each does what it says, is counted, and ends when it is told to."""

import asyncio
from typing import Any

import httpx
import pytest

from services.mock_sglang.events.publisher import Delivery
from services.mock_sglang.faults import Faults, FaultSwitches, LostEvents
from tests.services.mock_engine_rig import Rig, running, until

IDS = list(range(100, 200))
OTHERS = [[1_000 * n + i for i in range(100)] for n in range(1, 8)]


async def refusal(rig: Rig, body: Any) -> str:
    response = await rig.client.put("/kvcompass_mock/faults", json=body)
    assert response.status_code == 400
    return str(response.json()["param"])


async def test_switches_are_there_only_where_settings_say_so() -> None:
    async with running() as rig:
        assert (await rig.client.get("/kvcompass_mock/faults")).status_code == 404
        assert (await rig.client.put("/kvcompass_mock/faults", json={})).status_code == 404
        assert "kvcompass_mock" not in (await rig.client.get("/metrics")).text


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"slwo": 2}, "slwo"),
        ({"drop_events": {"shar": 0.5}}, "drop_events.shar"),
        ({"slow": "very"}, "slow"),
        ({"slow": 0}, "slow"),
        ({"status_500": 1.5}, "status_500"),
        ({"drop_events": {"share": -1}}, "drop_events.share"),
        ({"drop_events": {"next_batches": -1}}, "drop_events.next_batches"),
        ({"drop_events": {"next_batches": 2**64}}, "drop_events.next_batches"),
        ({"random_seed": -(2**64)}, "random_seed"),
        ({"crash_after_ms": -1}, "crash_after_ms"),
        ({"ring_batches": 0}, "ring_batches"),
        ({"ring_batches": 10_001}, "ring_batches"),
        ({"eviction_policy": "mru"}, "eviction_policy"),
        ([], "body"),
    ],
)
async def test_a_bad_switch_is_named_and_changes_nothing(body: Any, field: str) -> None:
    async with running(fault_switches=True, event_endpoint="", replay_endpoint="") as rig:
        before = await rig.faults(slow=2.0)
        assert await refusal(rig, body) == field
        assert (await rig.client.get("/kvcompass_mock/faults")).json() == before


async def test_what_is_left_out_is_sound_again() -> None:
    async with running(fault_switches=True) as rig:
        shown = await rig.faults(slow=3.0, drop_events={"next_batches": 2})
        assert (shown["faults"]["slow"], shown["faults"]["drop_events"]["next_batches"]) == (3.0, 2)
        shown = await rig.faults()
        assert (shown["faults"]["slow"], shown["faults"]["drop_events"]["next_batches"]) == (1.0, 0)


async def test_a_crash_ends_the_process_hard_unless_it_is_called_off() -> None:
    async with running(fault_switches=True) as rig:
        await rig.faults(crash_after_ms=3_600_000)
        await rig.faults()
        await rig.faults(crash_after_ms=1)
        async with asyncio.timeout(10):
            assert await rig.exits.get() == 137
        assert rig.exits.empty()


async def test_a_hang_answers_nothing_until_it_ends_and_loses_nothing() -> None:
    async with running(fault_switches=True) as rig, rig.listening() as engine:
        await rig.faults(hang=True)
        asked = [
            asyncio.create_task(rig.generate(IDS)),
            asyncio.create_task(rig.client.get("/v1/loads")),
            asyncio.create_task(rig.client.get("/v1/models")),
            asyncio.create_task(engine.replay(0)),
        ]
        done, _ = await asyncio.wait(asked, timeout=0.3)
        assert not done
        assert (await engine.settle()) == []
        assert (await rig.client.get("/kvcompass_mock/faults")).json()["struck"]["hang"] == 1
        await rig.faults()
        generated, load, models, replay = await asyncio.gather(*asked)
        assert isinstance(generated, httpx.Response) and generated.status_code == 200
        assert isinstance(load, httpx.Response) and isinstance(models, httpx.Response)
        assert load.status_code == models.status_code == 200
        assert replay
        await engine.hear_stored(IDS)


async def test_a_hang_holds_the_answer_of_a_request_that_came_before_it() -> None:
    async with running(fault_switches=True, health_delay_s=0.1) as rig:
        health = asyncio.create_task(rig.client.get("/health"))
        await rig.faults(hang=True)
        done, _ = await asyncio.wait([health], timeout=0.4)
        assert not done
        await rig.faults()
        assert (await health).status_code == 200


async def test_a_hang_stops_an_answer_that_has_begun() -> None:
    async with running(fault_switches=True, time_scale=1.0) as rig:
        body = {"input_ids": IDS, "sampling_params": {"max_new_tokens": 20, "ignore_eos": True}}
        async with rig.client.stream("POST", "/generate", json={**body, "stream": True}) as response:
            parts = response.aiter_text()
            await anext(parts)
            await rig.faults(hang=True)
            rank = rig.server.ranks.all[0]
            stood = rank.engine._now_us()
            await asyncio.sleep(0.05)
            assert rank.engine._now_us() == stood
            await rig.faults()
            text = "".join([part async for part in parts])
        assert text.endswith("data: [DONE]\n\n")


async def test_a_hang_holds_the_events_of_a_client_that_leaves_meanwhile() -> None:
    async with running(fault_switches=True, page_size=1, time_scale=0.1) as rig, rig.listening() as engine:
        asked = asyncio.create_task(rig.generate(IDS, 20_000))
        rank = rig.server.ranks.all[0]
        await until(lambda: rank.load().model.generated_tokens >= 2)
        await rig.faults(hang=True)
        asked.cancel()
        await until(lambda: not rank.load().requests)
        assert await engine.settle()
        assert len(engine.events()) == len(IDS)
        await rig.faults()
        await engine.hear(lambda events: len(events) > len(IDS))


async def test_slow_takes_so_many_times_as_long_in_model_time() -> None:
    async def prefill_us(rig: Rig, ids: list[int]) -> int:
        async def busy() -> int:
            info = (await rig.client.get("/server_info")).json()
            return int(info["kvcompass_mock"]["prefill_busy_us"])

        before = await busy()
        await rig.generate(ids)
        return await busy() - before

    async with running(fault_switches=True) as rig:
        sound = await prefill_us(rig, IDS)
        await rig.faults(slow=10.0)
        assert await prefill_us(rig, OTHERS[0]) == 10 * sound


async def test_a_share_of_requests_fails_by_the_seed() -> None:
    async def statuses(rig: Rig) -> list[int]:
        return [(await rig.generate(IDS)).status_code for _ in range(40)]

    async with running(fault_switches=True) as rig:
        await rig.faults(status_500=0.5, random_seed=7)
        once = await statuses(rig)
        await rig.faults(status_500=0.5, random_seed=7)
        assert await statuses(rig) == once
        assert set(once) == {200, 500}
        assert (await rig.client.get("/v1/loads")).status_code == 200, "only generating routes fail"
        shown = await rig.faults()
        assert shown["struck"]["status_500"] == 2 * once.count(500)
        text = (await rig.client.get("/metrics")).text
        assert f'kvcompass_mock_sglang_faults_total{{fault="status_500"}} {2 * once.count(500)}\n' in text
        assert await statuses(rig) == [200] * 40


@pytest.mark.parametrize("kept", [True, False])
async def test_dropped_batches_are_numbered_and_replayed_if_they_are_kept(kept: bool) -> None:
    async with running(fault_switches=True) as rig, rig.listening() as engine:
        start = (await engine.replay(0))[-1].number
        await rig.faults(drop_events={"next_batches": 2, "kept": kept})
        for ids in OTHERS[:4]:
            await rig.generate(ids)
        await engine.hear_stored(OTHERS[3])
        assert [batch.number - start for batch in engine.seen] == [3, 4]
        again = [batch.number - start for batch in await engine.replay(start)]
        assert again == ([0, 1, 2, 3, 4] if kept else [0, 3, 4])
        shown = (await rig.client.get("/kvcompass_mock/faults")).json()
        assert shown["faults"]["drop_events"]["next_batches"] == 0
        assert shown["struck"]["drop_events"] == 2


async def test_a_share_of_batches_is_dropped_by_the_seed() -> None:
    switches = FaultSwitches(lambda _: None)

    def fates() -> list[Delivery]:
        switches.set(Faults(drop_events=LostEvents(share=0.3), random_seed=3))
        return [switches.delivery() for _ in range(1_000)]

    once = fates()
    assert fates() == once
    assert 200 < once.count(Delivery.UNSENT) < 400
    assert set(once) == {Delivery.SENT, Delivery.UNSENT}


async def test_a_restart_in_place_empties_caches_and_numbers_from_0() -> None:
    async with running(fault_switches=True) as rig, rig.listening() as engine:
        await rig.generate(IDS)
        await engine.hear_stored(IDS)
        assert await rig.cached(IDS) == 96
        before = engine.seen[-1].number
        assert before > 0
        shown = await rig.faults(restart=True)
        assert (shown["faults"]["restart"], shown["struck"]["restart"]) == (False, 1)
        await engine.hear(lambda events: events[-1].kind == "AllBlocksCleared")
        assert engine.seen[-1].number == 0
        assert [batch.number for batch in await engine.replay(0)] == [0]
        assert await rig.cached(IDS) == 0
        await rig.faults()
        assert await rig.cached(IDS) == 96, "once is once"


async def test_a_restart_ends_requests_with_a_status_that_may_be_tried_again() -> None:
    async with running(fault_switches=True, time_scale=100.0) as rig:
        asked = asyncio.create_task(rig.generate(IDS))
        await rig.until_running(1)
        await rig.faults(restart=True)
        assert (await asked).status_code == 503
        assert (await rig.loads())[0]["num_running_reqs"] == 0


async def test_a_short_ring_forgets() -> None:
    async with running(fault_switches=True) as rig, rig.listening() as engine:
        for ids in OTHERS:
            await rig.generate(ids)
            await engine.hear_stored(ids)
        await rig.faults(ring_batches=2)
        last = engine.seen[-1].number
        assert [batch.number for batch in await engine.replay(0)] == [last - 1, last]


async def test_a_silent_load_answers_when_it_is_told_again() -> None:
    async with running(fault_switches=True) as rig:
        await rig.faults(silence_load=True)
        asked = [asyncio.create_task(rig.client.get(path)) for path in ("/v1/loads", "/get_load")]
        assert await rig.cached(IDS) == 0, "the engine serves on"
        done, _ = await asyncio.wait(asked, timeout=0.2)
        assert not done
        assert (await rig.faults())["struck"]["silence_load"] == 2
        assert [response.status_code for response in await asyncio.gather(*asked)] == [200, 200]


async def test_a_stuck_publisher_says_nothing_and_then_all_of_it_in_order() -> None:
    async with running(fault_switches=True) as rig, rig.listening() as engine:
        await rig.faults(stick_events=True)
        heard = len(engine.seen)
        for ids in OTHERS:
            await rig.generate(ids)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(engine.replay(0), 0.3)
        assert len(engine.seen) == heard
        shown = await rig.faults()
        assert shown["struck"]["stick_events"] == 1
        for ids in OTHERS:
            await engine.hear_stored(ids)
        numbers = [batch.number for batch in engine.seen[heard:]]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


async def test_the_eviction_policy_changes_while_running() -> None:
    async with running(
        fault_switches=True, page_size=4, cache_tokens=240, event_endpoint="", replay_endpoint=""
    ) as rig:
        await rig.generate(IDS)
        await rig.generate(OTHERS[0])
        await rig.generate(IDS)
        await rig.faults(eviction_policy="fifo")
        await rig.generate(OTHERS[1])
        assert await rig.cached(OTHERS[0]) == 96, "by use it would have been the one to go"


@pytest.mark.parametrize("drift", ["chat_template", "tokenizer", "bos"])
async def test_a_drift_reads_chats_otherwise_and_nothing_else(drift: str) -> None:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Why are there tides? " * 20}],
        "max_tokens": 1,
    }

    async def reused(rig: Rig) -> int:
        usage = (await rig.client.post("/v1/chat/completions", json=body)).json()["usage"]
        return int((usage["prompt_tokens_details"] or {"cached_tokens": 0})["cached_tokens"])

    async with running(fault_switches=True) as rig:
        assert (await reused(rig), await rig.cached(IDS)) == (0, 0)
        whole = await reused(rig)
        await rig.faults(chat_drift=drift)
        assert await reused(rig) < 16, "another prompt"
        assert await reused(rig) >= whole - 16, "and always the same"
        assert await rig.cached(IDS) > 0
        await rig.faults()
        assert await reused(rig) == whole
