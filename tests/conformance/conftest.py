"""Which engine the suite is put to: the one that the environment names, else the double as every version.

    KVCOMPASS_ENGINE_URL=http://127.0.0.1:30000 KVCOMPASS_ENGINE_EVENTS=tcp://127.0.0.1:5557 \
    KVCOMPASS_ENGINE_REPLAY=tcp://127.0.0.1:5657 pytest tests/conformance

The engine must be idle and stay so: the suite empties its cache before every test.
KVCOMPASS_ENGINE_VOCABULARY bounds the token ids of its prompts (500 unless set). See docs/engine-double.md.
KVCOMPASS_ENGINES names installed engines instead, which are started for the suite: `make test-engines`.
"""

import os
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.server import MockServer
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from tests.conformance.engine_under_test import EngineUnderTest, attach
from tests.engines.engine import Place
from tests.engines.real.homes import RELEASES
from tests.engines.real.sglang import Sglang
from tests.models.ports import lab_ports

ANY_PORT = "tcp://127.0.0.1:*"
REAL_URL = os.environ.get("KVCOMPASS_ENGINE_URL", "")
NAMED = os.environ.get("KVCOMPASS_ENGINES", "").split()
INSTALLED = [name for name in NAMED if RELEASES[name].package == "sglang"]
DOUBLES = [f"double {version}" for version in PROFILES]
ENGINES = ["real"] if REAL_URL else INSTALLED if NAMED else DOUBLES
SETTINGS: dict[str, Any] = {
    "address": "127.0.0.1:0",
    "model": "m",
    "page_size": 16,
    "cache_tokens": 4_096,
    "context_length": 2_048,
    "time_scale": 0.2,
    "health_delay_s": 0.3,
    "event_endpoint": ANY_PORT,
    "replay_endpoint": ANY_PORT,
}
VOCABULARY = int(os.environ.get("KVCOMPASS_ENGINE_VOCABULARY", "500"))


@contextmanager
def started(name: str) -> Iterator[Place]:
    """An installed engine, for as long as the context lasts."""
    directory = Path(tempfile.mkdtemp(prefix="kvcompass-engine-"))
    ports = lab_ports()
    place = Place(ports.address(), ports.address(), ports.address(), directory)
    server = Sglang(place, RELEASES[name])
    try:
        server.start()
        yield place
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


@asynccontextmanager
async def attached_to(name: str, **changes: Any) -> AsyncIterator[EngineUnderTest]:
    """The real engine, or a double that is started for it with other settings than SETTINGS."""
    if REAL_URL:
        events, replay = os.environ["KVCOMPASS_ENGINE_EVENTS"], os.environ["KVCOMPASS_ENGINE_REPLAY"]
        seed = random.randrange(2**32)
        async with attach(
            REAL_URL, events, replay, vocabulary=VOCABULARY, seed=seed, settled_ms=500
        ) as engine:
            yield engine
        return
    if name in INSTALLED:
        with started(name) as place:
            async with attach(
                place.url,
                f"tcp://{place.events}",
                f"tcp://{place.replay}",
                vocabulary=VOCABULARY,
                seed=random.randrange(2**32),
                settled_ms=500,
            ) as engine:
                yield engine
        return
    version = name.removeprefix("double ")
    server = MockServer(
        MockSettings(**{**SETTINGS, "event_profile": version, **changes}), PromptEncoder.load()
    )
    await server.start()
    url = f"http://127.0.0.1:{server.port}"
    try:
        async with attach(
            url,
            server.event_endpoint,
            server.replay_endpoint,
            vocabulary=VOCABULARY,
            seed=1,
            settled_ms=40,
        ) as engine:
            yield engine
    finally:
        await server.stop(drain_s=0.1)


@pytest_asyncio.fixture(params=ENGINES, scope="session", loop_scope="session")
async def attached(request: pytest.FixtureRequest) -> AsyncIterator[EngineUnderTest]:
    """An engine and all that is connected to it."""
    async with attached_to(request.param) as engine:
        yield engine


@pytest_asyncio.fixture(loop_scope="session")
async def engine(attached: EngineUnderTest) -> EngineUnderTest:
    """The engine under test, idle and empty."""
    await attached.empty()
    return attached


@pytest_asyncio.fixture(params=ENGINES, loop_scope="session")
async def tiered(request: pytest.FixtureRequest) -> AsyncIterator[EngineUnderTest]:
    """An engine with a host tier of twice its cache, idle and empty. Skips a real one that has none."""
    if request.param in INSTALLED:
        pytest.skip("a server without a GPU has no host tier; tests/engines asks its cache alone")
    async with attached_to(request.param, host_cache_tokens=2 * SETTINGS["cache_tokens"]) as engine:
        if not engine.info.get("enable_hierarchical_cache"):
            pytest.skip("the engine has no host tier: --enable-hierarchical-cache")
        await engine.empty()
        yield engine
