"""The operations listener of every service: /health, /ready, /metrics and /plan, on loopback unless told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest

from services.runtime.build_metrics import BuildCollector
from services.runtime.certificates import CertificateCollector
from services.runtime.http_bounds import HttpBounds
from services.runtime.http_metrics import HttpCutsCollector
from services.runtime.http_server import HttpServer
from services.runtime.plan_desk import PlanDesk
from services.runtime.plan_intake import PlanIntake
from services.runtime.plan_metrics import PlanCollector
from services.runtime.settings import SettingsError

Message = MutableMapping[str, Any]

Switch = Callable[[str], None]
"""Takes a value as text. Errors: SettingsError."""

_SWITCHES = "/faults/"
_PLAN: Final = "/plan/"
_UNAVAILABLE: Final = 503
_JSON: Final = b"application/json"
_BOUNDS = HttpBounds(head_bytes=16 << 10, head_s=10.0, connections=128)
"""For a scraper, a balancer's probes and people."""


@dataclass(frozen=True, slots=True)
class Health:
    """The truth about a service now. `reasons` say why it is not ready and what it waits for."""

    ready: bool
    state: str
    reasons: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> bytes:
        """JSON body of /health and /ready."""
        return orjson.dumps(
            {"ready": self.ready, "state": self.state, "reasons": self.reasons, "details": self.details}
        )


class OpsServer:
    """`/health` answers 200 while the process works, `/ready` 200 or 503, `/metrics` the registry.

    `plan`: which plan runs, at `/plan`, and where another is brought (`PlanDesk`).
    `listeners`: the service's other ones by name; what they and this one turn away is in the registry too.
    `certificate_ends`: when the certificates of `[tls]` end, told in the registry.
    `switches`: faults by name that `PUT /faults/NAME/VALUE` sets; without any there is no such route.
    """

    def __init__(
        self,
        address: str,
        health: Callable[[], Health],
        registry: CollectorRegistry,
        listeners: Mapping[str, HttpServer] | None = None,
        switches: Mapping[str, Switch] | None = None,
        plan: PlanDesk | None = None,
        certificate_ends: Mapping[str, float] | None = None,
    ) -> None:
        self._health = health
        self._registry = registry
        self._switches = switches or {}
        self._plan = plan
        self._intake = PlanIntake(plan) if plan is not None else None
        registry.register(BuildCollector())
        registry.register(CertificateCollector(certificate_ends or {}))
        ProcessCollector(registry=registry)
        if plan is not None:
            registry.register(PlanCollector(plan))
        self._server = HttpServer(self._app, address, bounds=_BOUNDS)
        registry.register(HttpCutsCollector({"ops": self._server, **(listeners or {})}))

    @property
    def port(self) -> int:
        """The bound port, after `start`."""
        return self._server.port

    async def start(self) -> None:
        """Binds and serves. Errors: SettingsError."""
        if self._plan is not None:
            await asyncio.to_thread(self._plan.remove_leftovers)
        await self._server.start()

    async def stop(self) -> None:
        """Closes the listener."""
        await self._server.stop(drain_s=1.0)

    async def _app(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        path: str = scope["path"]
        if scope["method"] == "PUT" and path.startswith(_SWITCHES):
            status, content_type, body = self._switch(path)
        elif scope["method"] == "PUT" and path.startswith(_PLAN) and self._intake is not None:
            content_type = _JSON
            status, body = await self._intake.put(path.removeprefix(_PLAN), dict(scope["headers"]), receive)
        else:
            status, content_type, body = self._answer(path)
        headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        if status == _UNAVAILABLE:
            headers.append((b"retry-after", b"1"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/metrics":
            return 200, b"text/plain; version=0.0.4; charset=utf-8", generate_latest(self._registry)
        if path == "/plan" and self._plan is not None:
            return 200, _JSON, orjson.dumps(self._plan.state())
        if path in ("/health", "/ready"):
            health = self._health()
            status = _UNAVAILABLE if path == "/ready" and not health.ready else 200
            return status, _JSON, health.as_json()
        return 404, _JSON, b'{"error":"unknown path; try /health, /ready, /metrics or /plan"}'

    def _switch(self, path: str) -> tuple[int, bytes, bytes]:
        name, _, value = path.removeprefix(_SWITCHES).partition("/")
        switch = self._switches.get(name)
        if switch is None:
            return 404, _JSON, b'{"error":"no such switch; the settings must ask for it"}'
        try:
            switch(value)
        except SettingsError as error:
            return 400, _JSON, orjson.dumps({"error": f"{error.field}: {error}"})
        return 200, _JSON, b"{}"
