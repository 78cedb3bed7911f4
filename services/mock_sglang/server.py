"""One engine double, assembled: started, listening, stopped."""

import os
from collections.abc import Callable

from services.mock_sglang.faults import Faults, FaultSwitches
from services.mock_sglang.http.app import MockApp
from services.mock_sglang.http.generating import Generating
from services.mock_sglang.ranks.all_ranks import Ranks
from services.mock_sglang.ranks.roles import PrefillRole, role_of
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder
from services.runtime.http_server import HttpServer


class MockServer:
    """Lives inside a running event loop. Several may share a process (tests do)."""

    def __init__(
        self,
        settings: MockSettings,
        encoder: PromptEncoder,
        exit_now: Callable[[int], object] = os._exit,
    ) -> None:
        """`exit_now` is what the fault `crash_after_ms` calls. Errors: SettingsError."""
        self._faults = FaultSwitches(exit_now)
        self.ranks = Ranks(settings, self._faults)
        self._role = role_of(settings, self._faults)
        generating = Generating(settings, encoder, self.ranks, self._role, self._faults)
        self._app = MockApp(settings, self.ranks, generating, self._faults)
        self._http = HttpServer(self._app, settings.address)

    @property
    def port(self) -> int:
        """The HTTP port, after `start`."""
        return self._http.port

    @property
    def bootstrap_port(self) -> int | None:
        """Where decode engines ask, after `start`; None unless this is a prefill engine."""
        return self._role.port if isinstance(self._role, PrefillRole) else None

    @property
    def event_endpoint(self) -> str:
        """Where the first rank's events are published; empty when they are not."""
        publisher = self.ranks.all[0].publisher
        return publisher.endpoint if publisher else ""

    @property
    def replay_endpoint(self) -> str:
        """Where the first rank's past batches are replayed; empty when they are not."""
        publisher = self.ranks.all[0].publisher
        return publisher.replay_endpoint if publisher else ""

    async def start(self) -> None:
        """Returns once requests are accepted. Errors: SettingsError."""
        self.ranks.start()
        await self._role.start()
        await self._http.start()

    async def stop(self, drain_s: float = 5.0) -> None:
        """Let running requests end for `drain_s`, then abort them. A hang ends first, a crash is off."""
        self._app.stopping = True
        self._faults.clear()
        self.ranks.apply(Faults())
        await self._http.stop(drain_s)
        await self._role.stop()
        await self.ranks.close()
