"""The published edges, as a client and an operator see them."""

import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

Explanation = dict[str, Any]

_TIMEOUT_S = 30.0
_POLL_S = 0.2


class StepFailedError(Exception):
    """Something that the lab promises did not come true; the message says what."""


@dataclass(frozen=True, slots=True)
class Front:
    """Base URLs of the edges by region, and the keys to them."""

    edges: Mapping[str, str]
    model: str
    api_key: str
    admin_key: str

    def ask(self, region: str, prompt: list[int], *, admin: bool = True) -> httpx.Response:
        """A completion of four tokens through the region's edge. Errors: httpx.HTTPError."""
        key = self.admin_key if admin else self.api_key
        body = {"model": self.model, "prompt": prompt, "max_tokens": 4}
        return self._post(region, "/v1/completions", body, key).raise_for_status()

    def explain(self, region: str, prompt: list[int]) -> Explanation:
        """Where the region's edge would send the prompt, and what it knows of every worker."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": 4}
        answer = self._post(region, "/v1/kvcompass/route", body, self.admin_key).raise_for_status()
        explanation: Explanation = answer.json()
        return explanation

    def ready(self, region: str) -> bool:
        """Whether the region's edge says that it may be sent requests."""
        try:
            return _get(f"{self.edges[region]}/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def whole(self) -> bool:
        """Whether every edge is ready, with an exact view and a fresh load of every worker."""
        try:
            return all(self.ready(region) and self._sees_all(region) for region in self.edges)
        except httpx.HTTPError:
            return False

    def _sees_all(self, region: str) -> bool:
        explanation = self.explain(region, new_prompt(256))
        standings = {worker["standing"] for worker in explanation["workers"]}
        return standings == {"known"} and not bool(explanation["shards_not_exact"])

    def _post(self, region: str, path: str, body: dict[str, Any], key: str) -> httpx.Response:
        with _client() as client:
            headers = {"authorization": f"Bearer {key}"}
            return client.post(f"{self.edges[region]}{path}", json=body, headers=headers)


def new_prompt(tokens: int) -> list[int]:
    """Token ids that nobody has asked before."""
    rng = random.Random()
    return [rng.randrange(300, 4_000) for _ in range(tokens)]


def claim(explanation: Explanation, worker: str) -> int:
    """Tokens of the prompt that the edge believes the worker to hold."""
    return next(int(each["match_tokens"]) for each in explanation["workers"] if each["worker"] == worker)


def holds(explanation: Explanation, worker: str) -> bool:
    """Whether the edge believes the worker to hold the prompt at its longest indexed length."""
    return claim(explanation, worker) == int(explanation["lengths"][-1])


def wait_until(condition: Callable[[], bool], limit_s: float, what: str) -> float:
    """Polls; returns the seconds it took. Errors: StepFailedError after `limit_s`."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise StepFailedError(f"{what}: not within {limit_s:g} s")
        time.sleep(_POLL_S)
    return time.monotonic() - began


def seen_in(front: Front, regions: Iterable[str], worker: str, prompt: list[int]) -> bool:
    """Whether the edges of all the regions believe the worker to hold the prompt; False when one is down."""
    try:
        return all(holds(front.explain(region, prompt), worker) for region in regions)
    except httpx.HTTPError:
        return False


def _get(url: str) -> httpx.Response:
    with _client() as client:
        return client.get(url)


def _client() -> httpx.Client:
    """A fresh connection each time: services are killed under it."""
    return httpx.Client(trust_env=False, timeout=_TIMEOUT_S)
