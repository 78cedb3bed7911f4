"""After a recovery: one prompt is asked in one region and must be known in all, and reused from another."""

import random
import time
from typing import Any, Final

import httpx

from lab.faults.drill import Drill, NotRecoveredError
from lab.three_regions import MODEL

_PROMPT_TOKENS: Final = 2_500
"""Above any first length of the lab: every region looks for it in every other."""
LEARN_LIMIT_S: Final = 10.0


def probe(drill: Drill, rng: random.Random) -> float:
    """Asks; returns the seconds from the answer until every edge knew who holds the prompt.

    Errors: NotRecoveredError.
    """
    prompt = [rng.randrange(300, 4_000) for _ in range(_PROMPT_TOKENS)]
    first, *_, last = drill.plan.edges
    try:
        with httpx.Client(trust_env=False, timeout=30.0) as client:
            return _probe(client, drill, prompt, first.address, last.address)
    except httpx.HTTPError as error:
        raise NotRecoveredError(f"a request after the recovery failed: {error!r}") from error


def _probe(client: httpx.Client, drill: Drill, prompt: list[int], near: str, far: str) -> float:
    worker = _ask(client, near, prompt)[0]
    answered = time.monotonic()
    for edge in drill.plan.edges:
        drill.until(
            lambda: _knows(client, edge.address, prompt, worker),  # noqa: B023
            LEARN_LIMIT_S,
            f"{edge.id} knows that {worker} holds what it was asked after the recovery",
        )
    learned_s = time.monotonic() - answered
    answering, claim, cached = _ask(client, far, prompt)
    if cached < claim:
        raise NotRecoveredError(
            f"{answering} reused {cached} tokens where {claim} were claimed, and all was true"
        )
    return learned_s


def _ask(client: httpx.Client, address: str, prompt: list[int]) -> tuple[str, int, int]:
    """Who answered, the claim, and what was reused."""
    answer = client.post(f"http://{address}/v1/completions", json=_body(prompt)).raise_for_status()
    details = answer.json()["usage"]["prompt_tokens_details"] or {}
    claim = int(answer.headers["x-kvcompass-match-tokens"])
    return answer.headers["x-kvcompass-worker"], claim, int(details.get("cached_tokens") or 0)


def _knows(client: httpx.Client, address: str, prompt: list[int], worker: str) -> bool:
    answer = client.post(f"http://{address}/v1/kvcompass/route", json=_body(prompt)).raise_for_status()
    told: dict[str, Any] = answer.json()
    return any(
        each["worker"] == worker and each["match_tokens"] == told["lengths"][-1] for each in told["workers"]
    )


def _body(prompt: list[int]) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "max_tokens": 2}
