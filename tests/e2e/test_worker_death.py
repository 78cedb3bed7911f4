"""A worker that dies: what it costs, and how long it is remembered."""

import asyncio
import random
import time
from dataclasses import dataclass

import httpx
import pytest

from lab.fleet import Fleet
from lab.record import Record
from lab.replay import replay
from lab.scrape import counter_total
from lab.three_regions import MODEL
from lab.workload.request import Request, Workload
from tests.e2e.asking import (
    REGIONS,
    comes_to_choose,
    engine_url,
    explain,
    hold,
    knows,
    knows_nothing,
    new_prompt,
    seen_everywhere,
    watch_everywhere,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

VICTIM = "worker-us-1"
FORGOTTEN_S = 5.0
"""From the kill, in every region: the lease of 3 s, the unit's clock, the way, and a slow machine."""


def heavy_load(requests: int, duration_ms: float) -> Workload:
    """A third at once, so that every worker near their users has some waiting; the rest evenly."""
    rng = random.Random(5)
    at_once = requests // 3
    return Workload(
        source="test",
        seed=5,
        duration_ms=duration_ms,
        requests=tuple(
            Request(
                id=f"r{number}",
                at_ms=max(0, number - at_once) * duration_ms / (requests - at_once),
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


@dataclass(frozen=True, slots=True)
class Death:
    """What a kill in the middle of a replay led to."""

    forgotten_s: dict[str, float]
    """Region -> seconds from the kill until its view held nothing of the victim."""
    replay_went_on: bool
    """Whether requests were still under way by then."""
    records: list[Record]


async def kill_under_load(lab: Fleet, held: list[list[int]], workload: Workload) -> Death:
    """Kills the victim's engine and agent together while requests compute and wait there."""
    url = engine_url(lab, VICTIM)

    async def busy() -> None:
        async with httpx.AsyncClient(timeout=5.0, trust_env=False) as client, asyncio.timeout(60.0):
            while True:
                load = (await client.get(f"{url}/v1/loads")).json()["loads"][0]
                if load["num_running_reqs"] and load["num_waiting_reqs"]:
                    return
                await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        replaying = group.create_task(
            replay(workload, lab.base_urls, model=MODEL, time_scale=lab.blueprint.time_scale)
        )
        await busy()
        killed = time.monotonic()
        lab.process(VICTIM).kill()
        lab.process(VICTIM.replace("worker", "agent")).kill()
        forgotten = await watch_everywhere(lab, VICTIM, held, knows_nothing)
        went_on = not replaying.done()
    return Death({region: at - killed for region, at in forgotten.items()}, went_on, replaying.result())


def test_a_killed_worker_costs_only_answers_that_had_begun_and_is_forgotten_everywhere(
    full_scale_lab: Fleet,
) -> None:
    lab = full_scale_lab
    # Several, because the first key of each tells of one shard only.
    held = [new_prompt(2_000) for _ in range(4)]
    for prompt in held:
        hold(lab, VICTIM, prompt)
    for prompt in held:
        assert seen_everywhere(lab, VICTIM, prompt, knows)
    edges = [lab.blueprint.ops_addresses[edge.id] for edge in lab.blueprint.plan.edges]
    retries = asyncio.run(counter_total(edges, "kvcompass_edge_retries_total"))

    death = asyncio.run(kill_under_load(lab, held, heavy_load(45, duration_ms=8_000.0)))

    assert death.replay_went_on
    assert max(death.forgotten_s.values()) <= FORGOTTEN_S, death.forgotten_s
    failed = [record for record in death.records if record.error]
    assert all(record.ttft_ms is not None and record.worker == VICTIM for record in failed), failed
    assert len(failed) < len(death.records) // 3
    # What waited at the victim was answered by others.
    assert asyncio.run(counter_total(edges, "kvcompass_edge_retries_total")) > retries
    for region in REGIONS:
        assert explain(lab, region, held[0])["chosen"] != VICTIM


def test_it_is_found_again_once_it_is_back(full_scale_lab: Fleet) -> None:
    for name in (VICTIM, VICTIM.replace("worker", "agent")):
        if not full_scale_lab.process(name).running:
            full_scale_lab.restart(name)
    prompt = new_prompt(4_000)
    hold(full_scale_lab, VICTIM, prompt)
    assert seen_everywhere(full_scale_lab, VICTIM, prompt, knows)
    assert comes_to_choose(full_scale_lab, "eu", prompt, VICTIM)


def test_an_engine_that_dies_alone_is_forgotten_everywhere(full_scale_lab: Fleet) -> None:
    worker = "worker-asia-1"
    prompt = new_prompt(4_000)
    hold(full_scale_lab, worker, prompt)
    assert seen_everywhere(full_scale_lab, worker, prompt, knows)
    assert comes_to_choose(full_scale_lab, "eu", prompt, worker)
    killed = time.monotonic()
    full_scale_lab.process(worker).kill()
    forgotten = asyncio.run(watch_everywhere(full_scale_lab, worker, [prompt], knows_nothing))
    assert max(forgotten.values()) - killed <= FORGOTTEN_S, forgotten
    for region in REGIONS:
        assert explain(full_scale_lab, region, prompt)["chosen"] != worker
