"""What the end-to-end tests ask a lab: completions of token ids, and where they would go."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import httpx

from lab.fleet import Fleet
from lab.three_regions import MODEL

BODY_LIMIT = 300_000
"""Bytes; the edges of the tests refuse longer bodies."""
REGIONS = ("us", "eu", "asia")

HTTP = httpx.Client(
    trust_env=False, timeout=30.0, limits=httpx.Limits(max_connections=16, max_keepalive_connections=0)
)
"""Goes to loopback whatever proxy the machine uses, on a fresh connection each time: servers get killed."""

Explanation = dict[str, Any]
Sight = Callable[[Explanation, str], bool]
"""A condition on what an edge answers about a prompt and a worker."""


def new_prompt(tokens: int = 8_000) -> list[int]:
    """Token ids that nobody has asked before."""
    rng = random.Random()
    return [rng.randrange(300, 4_000) for _ in range(tokens)]


def body(prompt: list[int], **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 4, **more}


def ask(lab: Fleet, region: str, prompt: list[int], **more: Any) -> httpx.Response:
    """A completion through the region's edge. Raises on a status that is no success."""
    return HTTP.post(f"{lab.base_urls[region]}/completions", json=body(prompt, **more)).raise_for_status()


def hold(lab: Fleet, worker: str, prompt: list[int]) -> None:
    """Lets the worker's engine cache the prompt, past every edge."""
    url = engine_url(lab, worker)
    HTTP.post(f"{url}/v1/completions", json=body(prompt, max_tokens=1)).raise_for_status()


def engine_url(lab: Fleet, worker: str) -> str:
    return next(each.url for each in lab.blueprint.plan.workers if each.id == worker)


def explain(lab: Fleet, region: str, prompt: list[int]) -> Explanation:
    """Where the region's edge would send the prompt now, and every worker's terms."""
    answer = HTTP.post(f"{lab.base_urls[region]}/kvcompass/route", json=body(prompt)).raise_for_status()
    explanation: Explanation = answer.json()
    return explanation


def terms(explanation: Explanation, worker: str) -> dict[str, Any]:
    """What the edge knows of one worker."""
    return next(each for each in explanation["workers"] if each["worker"] == worker)


def knows(explanation: Explanation, worker: str) -> bool:
    """Whether the edge believes the worker to hold the prompt at its longest registered length.

    Less than that is not found yet: a prompt's keys come from two shards, each on its own way.
    """
    return bool(terms(explanation, worker)["match_tokens"] == explanation["lengths"][-1])


def knows_nothing(explanation: Explanation, worker: str) -> bool:
    """Whether the edge believes the worker to hold nothing of the prompt."""
    return bool(terms(explanation, worker)["match_tokens"] == 0)


async def watch_everywhere(
    lab: Fleet, worker: str, prompts: Sequence[list[int]], sight: Sight, limit_s: float = 15.0
) -> dict[str, float]:
    """Watches all regions at once. Region -> `time.monotonic()` when it saw all prompts so; inf if never."""
    deadline = time.monotonic() + limit_s
    async with httpx.AsyncClient(trust_env=False, timeout=10.0) as client:

        async def sees(region: str, prompt: list[int]) -> bool:
            answer = await client.post(f"{lab.base_urls[region]}/kvcompass/route", json=body(prompt))
            return sight(answer.raise_for_status().json(), worker)

        async def watch(region: str) -> float:
            for prompt in prompts:
                while not await sees(region, prompt):
                    if time.monotonic() > deadline:
                        return float("inf")
                    await asyncio.sleep(0.03)
            return time.monotonic()

        return dict(zip(REGIONS, await asyncio.gather(*map(watch, REGIONS)), strict=True))


def seen_everywhere(lab: Fleet, worker: str, prompt: list[int], sight: Sight) -> bool:
    """Whether every region comes to see the prompt so within a time that only a fault exceeds."""
    return max(asyncio.run(watch_everywhere(lab, worker, [prompt], sight)).values()) < float("inf")


def comes_true(condition: Callable[[], bool], limit_s: float) -> bool:
    """Polls until the condition holds, or the time is over."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.03)
    return True


def comes_to_choose(lab: Fleet, region: str, prompt: list[int], worker: str) -> bool:
    """Whether the region's edge would send the prompt there, once it hears that the worker is idle."""
    return comes_true(lambda: explain(lab, region, prompt)["chosen"] == worker, limit_s=15.0)
