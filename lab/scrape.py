"""Reads what processes tell about themselves: counters of the edges, compute time of the engines."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from lab.load_factor import BusySample

_TIMEOUT_S = 5.0


async def counter_total(addresses: Iterable[str], name: str) -> int:
    """Sum of a counter over processes and labels. `name` ends in `_total`. Errors: httpx.HTTPError."""
    total = 0.0
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
        for address in addresses:
            answer = await client.get(f"http://{address}/metrics")
            answer.raise_for_status()
            total += sum(
                sample.value
                for family in text_string_to_metric_families(answer.text)
                for sample in family.samples
                if sample.name == name
            )
    return round(total)


class BusySampler:
    """Samples the engines' compute time (prefill and decode) once a model second."""

    def __init__(self, urls: Mapping[str, str], time_scale: float) -> None:
        self._urls = dict(urls)
        self._scale = time_scale
        self._start = time.monotonic()
        self.samples: list[BusySample] = []
        """In order of time, model ms."""

    async def run(self) -> None:
        """Samples until cancelled."""
        while True:
            await self.sample()
            await asyncio.sleep(self._scale)

    async def sample(self) -> None:
        """Takes one sample; a round in which an engine does not answer is left out."""
        async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
            at_ms = 1e3 * (time.monotonic() - self._start) / self._scale
            try:
                answers = [await client.get(f"{url}/server_info") for url in self._urls.values()]
            except httpx.HTTPError:
                return
        busy = {worker: _busy_ms(answer.json()) for worker, answer in zip(self._urls, answers, strict=True)}
        self.samples.append(BusySample(at_ms, busy))


def _busy_ms(server_info: Mapping[str, Any]) -> float:
    own = server_info["kvcompass_mock"]
    return float(own["prefill_busy_us"] + own["decode_busy_us"]) / 1e3
