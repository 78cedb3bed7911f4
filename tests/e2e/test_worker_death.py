"""A worker that dies under load: what it costs, and how long it is remembered."""

import asyncio
import random

import httpx
import pytest

from lab.fleet import Fleet
from lab.record import Record
from lab.replay import replay
from lab.three_regions import MODEL
from lab.workload.request import Request, Workload
from tests.e2e.asking import REGIONS, ask, explain, match_at, new_prompt, seconds_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TIME_SCALE = 1.0
"""At full length, so that the engines are what is busy and not the client."""
VICTIM = "worker-us-1"


def heavy_load(requests: int, duration_ms: float) -> Workload:
    rng = random.Random(5)
    return Workload(
        source="test",
        seed=5,
        duration_ms=duration_ms,
        requests=tuple(
            Request(
                id=f"r{number}",
                at_ms=number * duration_ms / requests,
                region=("us", "us", "us", "eu", "asia")[number % 5],
                user="u",
                kind="document",
                family="f",
                messages=({"role": "user", "content": " ".join(rng.choices(["river", "stone"], k=1_500))},),
                tools=(),
                max_tokens=100,
            )
            for number in range(requests)
        ),
    )


async def replay_and_kill(lab: Fleet, workload: Workload) -> list[Record]:
    """Kills the victim's engine and agent together while it computes something."""
    url = next(worker.url for worker in lab.blueprint.plan.workers if worker.id == VICTIM)

    async def kill_while_busy() -> None:
        async with httpx.AsyncClient(timeout=5.0) as client, asyncio.timeout(30.0):
            busy = 0
            while busy < 2:
                load = (await client.get(f"{url}/v1/loads")).json()["loads"][0]
                busy = load["num_running_reqs"] + load["num_waiting_reqs"]
                await asyncio.sleep(0.02)
        lab.process(VICTIM).kill()
        lab.process(VICTIM.replace("worker", "agent")).kill()

    async with asyncio.TaskGroup() as group:
        replaying = group.create_task(
            replay(workload, lab.base_urls, model=MODEL, time_scale=lab.blueprint.time_scale)
        )
        group.create_task(kill_while_busy())
    return replaying.result()


def test_a_killed_worker_costs_only_answers_that_had_begun_and_is_cleared_everywhere(lab: Fleet) -> None:
    held = new_prompt()
    for _ in range(20):
        if ask(lab, "us", held).headers["x-kvcompass-worker"] == VICTIM:
            break
        held = new_prompt()
    for region in REGIONS:
        assert seconds_until(lambda: match_at(lab, region, VICTIM, held) > 0, limit_s=5.0) < 5.0  # noqa: B023

    records = asyncio.run(replay_and_kill(lab, heavy_load(40, duration_ms=8_000.0)))

    failed = [record for record in records if record.error]
    assert all(record.ttft_ms is not None and record.worker == VICTIM for record in failed), failed
    assert len(failed) < len(records) // 3
    # The replay went on after the kill; what is left of the five seconds is waited for.
    for region in REGIONS:
        assert seconds_until(lambda: match_at(lab, region, VICTIM, held) == 0, limit_s=5.0) < 5.0  # noqa: B023
        assert ask(lab, region, held).headers["x-kvcompass-worker"] != VICTIM


def test_it_is_found_again_once_it_is_back(lab: Fleet) -> None:
    agent = VICTIM.replace("worker", "agent")
    for name in (VICTIM, agent):
        if not lab.process(name).running:
            lab.restart(name)
    prompt = new_prompt()
    for _ in range(20):
        if ask(lab, "us", prompt).headers["x-kvcompass-worker"] == VICTIM:
            break
        prompt = new_prompt()
    assert seconds_until(lambda: explain(lab, "eu", prompt)["chosen"] == VICTIM, limit_s=15.0) < 15.0
