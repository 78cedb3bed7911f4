"""Engine doubles of the tests: started, asked, listened to."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from tests.conformance.engine_under_test import EngineUnderTest, attach

ENCODER = PromptEncoder.load()
ANY_PORT = "tcp://127.0.0.1:*"
SETTINGS: dict[str, Any] = {
    "address": "127.0.0.1:0",
    "model": "m",
    "time_scale": 0.01,
    "health_delay_s": 0.0,
    "event_endpoint": ANY_PORT,
    "replay_endpoint": ANY_PORT,
}
PATIENCE_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what nobody is told of."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


@dataclass(slots=True)
class Rig:
    """A double that runs. `exits` has the statuses with which it would have ended its process."""

    server: MockServer
    client: httpx.AsyncClient
    exits: asyncio.Queue[int]

    async def generate(self, ids: Sequence[int], tokens: int = 0, **fields: Any) -> httpx.Response:
        sampling = {"max_new_tokens": tokens, "ignore_eos": True}
        return await self.client.post(
            "/generate", json={"input_ids": list(ids), "sampling_params": sampling, **fields}
        )

    async def cached(self, ids: Sequence[int], **fields: Any) -> int:
        response = await self.generate(ids, **fields)
        assert response.status_code == 200, response.text
        return int(response.json()["meta_info"]["cached_tokens"])

    async def faults(self, **faults: Any) -> dict[str, Any]:
        """Set exactly these; returns what GET would show."""
        response = await self.client.put("/kvcompass_mock/faults", json=faults)
        assert response.status_code == 200, response.text
        shown: dict[str, Any] = response.json()
        return shown

    async def loads(self) -> list[dict[str, Any]]:
        loads: list[dict[str, Any]] = (await self.client.get("/v1/loads")).json()["loads"]
        return loads

    async def until_running(self, count: int) -> None:
        """Wait until so many requests run or wait on all ranks."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                loads = await self.loads()
                if sum(load["num_running_reqs"] + load["num_waiting_reqs"] for load in loads) == count:
                    return
                await asyncio.sleep(0.005)

    @asynccontextmanager
    async def listening(self, rank: int = 0) -> AsyncIterator[EngineUnderTest]:
        """Attached to one rank's events, from an empty cache on."""
        publisher = self.server.ranks.all[rank].publisher
        assert publisher is not None
        async with attach(
            str(self.client.base_url),
            publisher.endpoint,
            publisher.replay_endpoint,
            vocabulary=500,
            seed=rank,
            settled_ms=50,
        ) as engine:
            await engine.empty()
            yield engine


@asynccontextmanager
async def running(**changes: Any) -> AsyncIterator[Rig]:
    """A double with settings other than SETTINGS."""
    exits: asyncio.Queue[int] = asyncio.Queue()
    server = MockServer(MockSettings(**{**SETTINGS, **changes}), ENCODER, exits.put_nowait)
    await server.start()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}", timeout=PATIENCE_S, trust_env=False
        ) as client:
            yield Rig(server, client, exits)
    finally:
        await server.stop(drain_s=0.1)
