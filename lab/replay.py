"""Sends a workload with the official OpenAI client, each user to the edge of the own region, on time.

The loop is open: a slow answer delays no later request. What the client measures is divided by the time
scale, so that records are in model ms.
"""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from lab.record import Record
from lab.workload.request import Request, Workload

MAX_IN_FLIGHT = 512
"""Requests open at once; beyond it sending waits, which shows as `late_ms`."""
REQUEST_TIMEOUT_S = 120.0

OnRecord = Callable[[Record], None]


async def replay(
    workload: Workload,
    base_urls: Mapping[str, str],
    *,
    model: str,
    time_scale: float,
    on_record: OnRecord = lambda _: None,
    api_key: str = "lab",
) -> list[Record]:
    """Sends every request once, without retries, and returns their records in the workload's order."""
    async with contextlib.AsyncExitStack() as stack:
        clients: dict[str, AsyncOpenAI] = {}
        for region, url in base_urls.items():
            clients[region] = await stack.enter_async_context(_client(url, api_key))
        clock = _Clock(time_scale)
        room = asyncio.Semaphore(MAX_IN_FLIGHT)
        tasks: list[asyncio.Task[Record]] = []

        async def one(request: Request) -> Record:
            try:
                record = await _send(clients[request.region], request, model, clock)
            finally:
                room.release()
            on_record(record)
            return record

        async with asyncio.TaskGroup() as group:
            for request in workload.requests:
                await clock.sleep_until(request.at_ms)
                await room.acquire()
                tasks.append(group.create_task(one(request)))
    return [task.result() for task in tasks]


def _client(url: str, api_key: str) -> AsyncOpenAI:
    return AsyncOpenAI(
        base_url=url,
        api_key=api_key,
        max_retries=0,
        timeout=REQUEST_TIMEOUT_S,
        http_client=DefaultAsyncHttpxClient(trust_env=False),
    )


class _Clock:
    """Model ms since its creation."""

    def __init__(self, time_scale: float) -> None:
        self._scale = time_scale
        self._start = time.monotonic()

    def now_ms(self) -> float:
        return 1e3 * (time.monotonic() - self._start) / self._scale

    async def sleep_until(self, at_ms: float) -> None:
        await asyncio.sleep(max(0.0, (at_ms - self.now_ms()) * self._scale / 1e3))


async def _send(client: AsyncOpenAI, request: Request, model: str, clock: _Clock) -> Record:
    sent = clock.now_ms()
    record = Record(
        request_id=request.id,
        region=request.region,
        kind=request.kind,
        family=request.family,
        sent_ms=sent,
        late_ms=sent - request.at_ms,
    )
    seen: dict[str, Any] = {}
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            await _stream(client, request, model, clock, sent, seen)
    except TimeoutError:
        seen["error"] = f"no end within {REQUEST_TIMEOUT_S:.0f} s"
    except Exception as error:
        # Whatever the client raises is what a user would see; a broken stream raises its transport's errors.
        seen["error"] = f"{type(error).__name__}: {error}"
    return dataclasses.replace(record, **seen)


async def _stream(
    client: AsyncOpenAI, request: Request, model: str, clock: _Clock, sent: float, seen: dict[str, Any]
) -> None:
    """Fills `seen` with fields of the record as they become known."""
    arguments: dict[str, Any] = {
        "model": model,
        "messages": list(request.messages),
        "max_tokens": request.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "extra_headers": {"x-request-id": request.id},
    }
    if request.tools:
        arguments["tools"] = list(request.tools)
    response = await client.chat.completions.with_raw_response.create(**arguments)
    headers = response.headers
    seen["worker"] = headers.get("x-kvcompass-worker", "")
    seen["worker_region"] = headers.get("x-kvcompass-region", "")
    seen["match_tokens"] = int(headers.get("x-kvcompass-match-tokens", "0"))
    seen["decision_us"] = int(headers.get("x-kvcompass-decision-us", "0"))
    finished = False
    async with response.parse() as stream:
        async for chunk in stream:
            if chunk.choices:
                seen.setdefault("ttft_ms", clock.now_ms() - sent)
                finished = finished or chunk.choices[0].finish_reason is not None
            if chunk.usage is not None:
                details = chunk.usage.prompt_tokens_details
                seen["prompt_tokens"] = chunk.usage.prompt_tokens
                seen["completion_tokens"] = chunk.usage.completion_tokens
                seen["cached_tokens"] = (details.cached_tokens or 0) if details is not None else 0
    if finished and "prompt_tokens" in seen:
        seen["e2e_ms"] = clock.now_ms() - sent
    else:
        seen["error"] = "the stream ended without a finish reason and usage"
