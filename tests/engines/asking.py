"""What these tests ask a fleet: what its edges claim, what its engine reuses, and that things come true."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from tests.engines.engine import CONTEXT_TOKENS, MODEL
from tests.engines.fleet import REGIONS, WORKER, EngineFleet

HTTP = httpx.Client(
    trust_env=False, timeout=60.0, limits=httpx.Limits(max_connections=8, max_keepalive_connections=0)
)
"""Goes to loopback whatever proxy the machine uses, on a fresh connection each time: servers get killed."""

_LOWEST_ID, _END_ID = 300, 4_000
"""Token ids that stand for text in the builtin tokenizer."""


@dataclass(frozen=True, slots=True)
class Served:
    """One answer: what was promised of the prompt and what was kept, tokens."""

    claimed: int
    reused: int
    prompt_tokens: int
    worker: str
    text: str


def new_prompt(tokens: int) -> list[int]:
    """Token ids that nobody has asked before."""
    draw = random.Random()
    return [draw.randrange(_LOWEST_ID, _END_ID) for _ in range(tokens)]


def longer(prompt: Sequence[int], tokens: int = 8) -> list[int]:
    """The prompt and some tokens more; cut to what the model takes with an answer of one token."""
    return [*prompt, *new_prompt(tokens)][: CONTEXT_TOKENS - 1]


def ask(fleet: EngineFleet, prompt: Sequence[int], **more: Any) -> Served:
    """A completion through the engine's own region. Raises on a status that is no success."""
    return ask_body(fleet, "completions", {"prompt": list(prompt), **more})


def ask_body(fleet: EngineFleet, route: str, body: dict[str, Any]) -> Served:
    """The same for any body and route; `max_tokens` is 1 unless given."""
    body = {"model": MODEL, "max_tokens": 1, "temperature": 0, **body}
    answer = HTTP.post(f"{fleet.base_urls['us']}/{route}", json=body).raise_for_status()
    told = answer.json()
    usage = told["usage"]
    details = usage.get("prompt_tokens_details") or {}
    choice = told["choices"][0]
    return Served(
        claimed=int(answer.headers["x-kvcompass-match-tokens"]),
        reused=details.get("cached_tokens") or 0,
        prompt_tokens=usage["prompt_tokens"],
        worker=answer.headers["x-kvcompass-worker"],
        text=(choice["message"]["content"] if "message" in choice else choice["text"]) or "",
    )


def claim(fleet: EngineFleet, region: str, prompt: Sequence[int], **more: Any) -> int:
    """How much of a prompt the region's edge believes the engine to hold now.

    It is asked for a token more: an engine reuses all but the last.
    """
    return claim_of_body(fleet, region, {"prompt": [*prompt, _END_ID], **more})


def claim_of_body(fleet: EngineFleet, region: str, body: dict[str, Any]) -> int:
    """The same for any body."""
    url = f"{fleet.base_urls[region]}/kvcompass/route"
    answer = HTTP.post(url, json={"model": MODEL, **body}).raise_for_status().json()
    terms = next(each for each in answer["workers"] if each["worker"] == WORKER)
    return int(terms["match_tokens"])


def eventually(
    fleet: EngineFleet, condition: Callable[[], bool], what: str, seen: Callable[[], object] = str
) -> None:
    """Polls until the condition holds. Fails after the engine's patience, saying what was seen instead."""
    deadline = time.monotonic() + fleet.engine.patience_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {fleet.engine.patience_s:g} s. Seen: {seen()}")
        time.sleep(0.05)


def until_claimed(fleet: EngineFleet, prompt: Sequence[int], tokens: int) -> None:
    """Until every region's edge believes the engine to hold exactly so much of the prompt."""

    def claims() -> dict[str, int]:
        return {region: claim(fleet, region, prompt) for region in REGIONS}

    eventually(
        fleet,
        lambda: set(claims().values()) == {tokens},
        f"{tokens} tokens claimed everywhere",
        lambda: (claims(), agent(fleet)),
    )


def until_heard(fleet: EngineFleet) -> None:
    """Until every edge has taken in all that the engine has said so far: it comes to know a prompt that is
    served only now, and the one shard's log is in order."""
    marker = new_prompt(fleet.lengths[0])
    ask(fleet, marker)
    until_claimed(fleet, marker, fleet.lengths[0])


def until_served_here(fleet: EngineFleet) -> None:
    """Until the edge sends requests to the engine: it has heard that it is up."""
    probe = new_prompt(2)
    url = f"{fleet.base_urls['us']}/kvcompass/route"

    def chosen() -> bool:
        answer = HTTP.post(url, json={"model": MODEL, "prompt": probe}).raise_for_status().json()
        return bool(answer["chosen"] == WORKER)

    eventually(fleet, chosen, "the edge sends requests to the engine")


def flush(fleet: EngineFleet) -> None:
    """Empties the engine's cache past everybody. It refuses while it is not idle."""

    def flushed() -> bool:
        return HTTP.post(f"{fleet.place.url}{fleet.engine.flush_path}").status_code == 200

    eventually(fleet, flushed, "the engine flushes its cache")
    if not fleet.engine.speaks_idle:
        step = {"model": MODEL, "prompt": new_prompt(2), "max_tokens": 1}
        HTTP.post(f"{fleet.place.url}/v1/completions", json=step).raise_for_status()


def agent(fleet: EngineFleet) -> dict[str, Any]:
    """What the agent says of the engine; empty while it does not answer."""
    try:
        health: dict[str, Any] = HTTP.get(fleet.agent_health).json()
    except httpx.TransportError:
        return {}
    return dict(health.get("details", {}).get(WORKER, {}))


def until_agent(fleet: EngineFleet, state: str) -> None:
    """Until the agent says that it knows the engine so well."""
    eventually(
        fleet, lambda: agent(fleet).get("state") == state, f"the agent is {state}", lambda: agent(fleet)
    )
