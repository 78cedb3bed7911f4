"""Reads what processes tell about themselves: counters of the edges, compute time of the engines."""

from collections.abc import Iterable

import httpx
from prometheus_client.parser import text_string_to_metric_families

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
