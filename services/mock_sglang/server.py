"""One engine double, assembled: started, listening, stopped."""

import asyncio
from contextlib import suppress

from kvcompass.engine_model import Engine
from services.mock_sglang.app import MockApp
from services.mock_sglang.engine_loop import EngineLoop
from services.mock_sglang.publisher import EventPublisher
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from services.runtime.http_server import HttpServer


class MockServer:
    """Lives inside a running event loop. Several may share a process (tests do)."""

    def __init__(self, settings: MockSettings, encoder: PromptEncoder) -> None:
        self._settings = settings
        self._publisher: EventPublisher | None = None
        if settings.event_endpoint:
            self._publisher = EventPublisher(
                settings.event_endpoint,
                settings.replay_endpoint,
                settings.event_topic,
                settings.event_ring_batches,
            )
        self._engine = EngineLoop(
            Engine(settings.engine_config()),
            self._publisher,
            settings.time_scale,
            settings.stream_interval,
        )
        self._app = MockApp(settings, encoder, self._engine)
        self._http = HttpServer(self._app, settings.address)
        self._replay: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        """The HTTP port, after `start`."""
        return self._http.port

    @property
    def event_endpoint(self) -> str:
        """Where events are published; empty when they are not."""
        return self._publisher.endpoint if self._publisher else ""

    @property
    def replay_endpoint(self) -> str:
        """Where past batches are replayed; empty when they are not."""
        return self._publisher.replay_endpoint if self._publisher else ""

    async def start(self) -> None:
        """Returns once requests are accepted. Errors: SettingsError."""
        if self._publisher is not None:
            self._replay = asyncio.create_task(self._publisher.serve_replay(), name="replay")
        await self._http.start()

    async def stop(self, drain_s: float = 5.0) -> None:
        """Let running requests end for `drain_s`, then abort them."""
        self._app.stopping = True
        await self._http.stop(drain_s)
        self._engine.close()
        if self._replay is not None:
            self._replay.cancel()
            with suppress(asyncio.CancelledError):
                await self._replay
        if self._publisher is not None:
            self._publisher.close()
