"""The operations listener of every service: /health, /ready, /metrics and /plan, on loopback unless told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from services.runtime.http_bounds import HttpBounds
from services.runtime.http_metrics import HttpCutsCollector
from services.runtime.http_server import HttpServer
from services.runtime.plan_desk import PLAN_BYTES, PlanDesk
from services.runtime.plan_metrics import PlanCollector
from services.runtime.plan_signature import SIGNATURE_HEADER
from services.runtime.settings import SettingsError

Message = MutableMapping[str, Any]

Switch = Callable[[str], None]
"""Takes a value as text. Errors: SettingsError."""

_SWITCHES = "/faults/"
_PLAN: Final = "/plan/"
_BODY_S: Final = 10.0
"""For a plan to arrive."""
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
    ) -> None:
        self._health = health
        self._registry = registry
        self._switches = switches or {}
        self._plan = plan
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
        elif scope["method"] == "PUT" and path.startswith(_PLAN) and self._plan is not None:
            status, content_type, body = await self._bring(self._plan, path, scope["headers"], receive)
        else:
            status, content_type, body = self._answer(path)
        headers = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, path: str) -> tuple[int, bytes, bytes]:
        if path == "/metrics":
            return 200, b"text/plain; version=0.0.4; charset=utf-8", generate_latest(self._registry)
        if path == "/plan" and self._plan is not None:
            return 200, b"application/json", orjson.dumps(self._plan.state())
        if path in ("/health", "/ready"):
            health = self._health()
            status = 503 if path == "/ready" and not health.ready else 200
            return status, b"application/json", health.as_json()
        return 404, b"application/json", b'{"error":"unknown path; try /health, /ready, /metrics or /plan"}'

    async def _bring(
        self,
        plan: PlanDesk,
        path: str,
        headers: list[tuple[bytes, bytes]],
        receive: Callable[[], Awaitable[Message]],
    ) -> tuple[int, bytes, bytes]:
        signature = dict(headers).get(SIGNATURE_HEADER.encode(), b"").decode("latin-1")
        body = bytearray()
        more = True
        try:
            async with asyncio.timeout(_BODY_S):
                while more:
                    message = await receive()
                    if message["type"] != "http.request":
                        return 400, b"application/json", b'{"error":"the plan was cut off"}'
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > PLAN_BYTES:
                        return 413, b"application/json", b'{"error":"larger than any plan"}'
        except TimeoutError:
            return 408, b"application/json", b'{"error":"the plan took too long to arrive"}'
        status, answer = await plan.bring(path.removeprefix(_PLAN), signature, bytes(body))
        return status, b"application/json", answer

    def _switch(self, path: str) -> tuple[int, bytes, bytes]:
        name, _, value = path.removeprefix(_SWITCHES).partition("/")
        switch = self._switches.get(name)
        if switch is None:
            return 404, b"application/json", b'{"error":"no such switch; the settings must ask for it"}'
        try:
            switch(value)
        except SettingsError as error:
            return 400, b"application/json", orjson.dumps({"error": f"{error.field}: {error}"})
        return 200, b"application/json", b"{}"
