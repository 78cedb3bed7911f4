"""The public listeners of a fleet that is up: whether they are ready, and what they have counted."""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from lab.load_report import Counts
from lab.process import LabError

READY_TIMEOUT_S = 120.0
_TIMEOUT_S = 5.0
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Fronts:
    """One edge a region, as a client far from the fleet sees it."""

    urls: Mapping[str, str]
    """Region -> http://host:port."""
    api_key: str
    admin_key: str

    @property
    def base_urls(self) -> dict[str, str]:
        """Region -> base URL for an OpenAI client."""
        return {region: f"{url}/v1" for region, url in self.urls.items()}

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Errors: LabError naming the edge that is not ready in time, and what it said last."""
        deadline = time.monotonic() + timeout_s
        with httpx.Client(timeout=_TIMEOUT_S, trust_env=False) as client:
            for region, url in self.urls.items():
                while said := _unready(client, url):
                    if time.monotonic() > deadline:
                        raise LabError(f"the edge of {region} at {url} is not ready: {said}", field=region)
                    time.sleep(_PAUSE_S)

    async def counts(self) -> Mapping[str, Counts] | None:
        """By region; None when an edge tells this key nothing.

        Errors: LabError when an edge does not answer.
        """
        headers = {"authorization": f"Bearer {self.admin_key}"}
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False, headers=headers) as client:
            try:
                answers = await asyncio.gather(
                    *(client.get(f"{url}/v1/kvcompass/state") for url in self.urls.values())
                )
            except httpx.HTTPError as error:
                raise LabError(f"{error.request.url} does not answer: {error!r}", field="edge") from error
        if any(answer.status_code != 200 for answer in answers):
            return None
        states = [answer.json() for answer in answers]
        return {
            region: Counts(state["cross_region_hits"], state["wrong_claims"])
            for region, state in zip(self.urls, states, strict=True)
        }


def _unready(client: httpx.Client, url: str) -> str:
    """What the edge says instead of being ready; nothing when it is."""
    try:
        answer = client.get(f"{url}/ready")
    except httpx.HTTPError as error:
        return repr(error)
    return "" if answer.status_code == 200 else f"{answer.status_code} {answer.text[:200]}"
