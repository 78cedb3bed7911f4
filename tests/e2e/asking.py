"""What the end-to-end tests ask a lab: completions of token ids, and where they would go."""

import random
import time
from collections.abc import Callable
from typing import Any

import httpx

from lab.fleet import Fleet
from lab.three_regions import MODEL

BODY_LIMIT = 300_000
"""Bytes; the edges of the tests refuse longer bodies."""
REGIONS = ("us", "eu", "asia")


def new_prompt(tokens: int = 8_000) -> list[int]:
    """Token ids that nobody has asked before."""
    rng = random.Random()
    return [rng.randrange(300, 4_000) for _ in range(tokens)]


def body(prompt: list[int], **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 4, **more}


def ask(lab: Fleet, region: str, prompt: list[int], **more: Any) -> httpx.Response:
    """A completion through the region's edge. Raises on a status that is no success."""
    answer = httpx.post(f"{lab.base_urls[region]}/completions", json=body(prompt, **more), timeout=30.0)
    answer.raise_for_status()
    return answer


def explain(lab: Fleet, region: str, prompt: list[int]) -> dict[str, Any]:
    """Where the region's edge would send the prompt now, and every worker's terms."""
    answer = httpx.post(f"{lab.base_urls[region]}/kvcompass/route", json=body(prompt), timeout=10.0)
    answer.raise_for_status()
    explanation: dict[str, Any] = answer.json()
    return explanation


def match_at(lab: Fleet, region: str, worker: str, prompt: list[int]) -> int:
    """Tokens that the region's edge believes the worker to hold."""
    workers = explain(lab, region, prompt)["workers"]
    return next(int(each["match_tokens"]) for each in workers if each["worker"] == worker)


def seconds_until(condition: Callable[[], bool], limit_s: float) -> float:
    """How long it took until the condition held; `limit_s` at least when it never did."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            return time.monotonic() - began
        time.sleep(0.02)
    return time.monotonic() - began
