"""Components find each other without the proxy that the environment names for the rest of the world."""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from yarl import URL

from lab.fleet import Fleet
from lab.ports import LoopbackPorts
from lab.relay.control import ControlApp
from lab.relay.network import Network
from lab.three_regions import LabOptions, three_regions
from services.edge.forwarding.upstream import Upstream
from services.edge.settings import Timeouts
from services.runtime.grpc_transport import Dialer, serve_grpc
from services.runtime.http_server import HttpServer
from services.worker_agent.engine_client import EngineClient
from services.worker_agent.engine_facts import ask_facts

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def a_proxy_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, NOWHERE)
    monkeypatch.setenv("grpc_proxy", NOWHERE)


@asynccontextmanager
async def listening(app: Any) -> AsyncIterator[str]:
    server = HttpServer(app, "127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(20):
            yield f"127.0.0.1:{server.port}"
    finally:
        await server.stop(drain_s=0.0)


async def engine(_scope: Any, _receive: Any, send: Any) -> None:
    body = b'{"page_size": 16}'
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def test_grpc_channels() -> None:
    server, port = await serve_grpc(lambda _server: None, "127.0.0.1:0")
    try:
        async with asyncio.timeout(20), Dialer({}).channel(f"127.0.0.1:{port}") as channel:
            await channel.channel_ready()
    finally:
        await server.stop(grace=0.0)


async def test_an_edge_to_its_engines_and_peers() -> None:
    async with listening(engine) as address:
        for upstream in (Upstream.to_workers(Timeouts(), 2), Upstream.to_peers(Timeouts(), 2, None)):
            async with await upstream.post(URL(f"http://{address}/"), {}, b"{}", 5.0) as answer:
                assert answer.status == 200
            await upstream.close()


async def test_an_agent_to_its_engine() -> None:
    async with (
        listening(engine) as address,
        EngineClient(f"http://{address}", api_key="", timeout_ms=5_000) as client,
    ):
        assert (await ask_facts(client, "sglang")).page_size == 16


async def test_the_lab_to_its_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blueprint = three_regions(LabOptions(), LoopbackPorts(random.Random(7)))
    async with listening(ControlApp(Network((), (), 1))) as address:
        fleet = Fleet(replace(blueprint, relay_control=address))
        assert await asyncio.to_thread(fleet.wan_bytes) == 0
