"""The HTTP face: which route does what, and what a fault does to all of them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from urllib.parse import parse_qs

from services.mock_sglang.errors import EngineError, flat_error
from services.mock_sglang.faults import FaultSwitches, read_faults
from services.mock_sglang.http import info
from services.mock_sglang.http.asgi import (
    ClientGoneError,
    Message,
    Receive,
    Send,
    read_body,
    send_bytes,
    send_json,
)
from services.mock_sglang.http.generating import Generating
from services.mock_sglang.http.metrics import metrics
from services.mock_sglang.http.requests import ABORT, decode
from services.mock_sglang.load_report import LoadReport
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.ranks.all_ranks import Ranks
from services.mock_sglang.settings import MockSettings

Handler = Callable[[Message, Receive, Send], Awaitable[None]]

FAULTS_PATH = "/kvcompass_mock/faults"
FLUSHED = b"Cache flushed.\n"
NOT_FLUSHED = b"Flush cache failed: requests are running or waiting.\n"


class MockApp:
    """A plain ASGI application over the ranks of one engine."""

    def __init__(
        self, settings: MockSettings, ranks: Ranks, generating: Generating, faults: FaultSwitches
    ) -> None:
        self._settings = settings
        self._profile = PROFILES[settings.event_profile]
        self._ranks = ranks
        self._generating = generating
        self._faults = faults
        self._started = info.now()
        self.stopping = False
        """Set at shutdown: health turns 503 while running requests end."""
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/chat/completions"): generating.chat,
            ("POST", "/v1/completions"): generating.completion,
            ("POST", "/generate"): generating.generate,
            ("PUT", "/generate"): generating.generate,
            ("POST", "/tokenize"): generating.tokenize,
            ("POST", "/v1/tokenize"): generating.tokenize,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/health_generate"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/get_server_info"): self._server_info,
            ("GET", "/v1/loads"): self._loads,
            ("GET", "/metrics"): self._metrics,
            ("GET", "/metrics/"): self._metrics,
            ("POST", "/flush_cache"): self._flush,
            ("GET", "/flush_cache"): self._flush,
            ("POST", "/abort_request"): self._abort,
        }
        if self._profile.ready_route:
            self._routes["GET", "/ready"] = self._ready
        if self._profile.get_load is not None:
            self._routes["GET", "/get_load"] = self._get_load
        off = frozenset(settings.routes_off)
        self._routes = {key: handler for key, handler in self._routes.items() if key[1] not in off}
        if settings.fault_switches:
            self._routes["GET", FAULTS_PATH] = self._show_faults
            self._routes["PUT", FAULTS_PATH] = self._set_faults
        self._paths = {path for _, path in self._routes}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request; while the engine hangs, only its fault switches answer."""
        answer = send
        if scope["path"] != FAULTS_PATH:
            answer = self._while_answering(send)
            await self._faults.until_answering()
        try:
            await self._handler(scope)(scope, receive, answer)
        except EngineError as error:
            await send_json(answer, error.status, error.body, error.headers)
        except ClientGoneError:
            return

    def _while_answering(self, send: Send) -> Send:
        async def answer(message: Message) -> None:
            await self._faults.until_answering()
            await send(message)

        return answer

    def _handler(self, scope: Message) -> Handler:
        method, path = scope["method"], scope["path"]
        handler = self._routes.get((method, path))
        if handler is not None:
            return handler
        if path.startswith("/v1/models/") and method == "GET":
            return self._model
        if path in self._paths:
            raise EngineError(405, flat_error(405, "Method Not Allowed", "405"))
        raise EngineError(404, flat_error(404, "Not Found", "404"))

    async def _models(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, info.models(self._settings, self._started))

    async def _model(self, scope: Message, _receive: Receive, send: Send) -> None:
        self._generating.check_model(scope["path"].removeprefix("/v1/models/"))
        await send_json(send, 200, info.model_card(self._settings, self._started))

    async def _health(self, _scope: Message, _receive: Receive, send: Send) -> None:
        if not self.stopping:
            await asyncio.sleep(self._settings.health_delay_s)
        await self._ready(_scope, _receive, send)

    async def _ready(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_bytes(send, 503 if self.stopping else 200, b"text/plain", b"")

    async def _server_info(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, info.server_info(self._settings, self._ranks))

    async def _loads(self, scope: Message, _receive: Receive, send: Send) -> None:
        report = await self._report()
        wanted = parse_qs(scope["query_string"].decode("latin-1")).get("dp_rank")
        if wanted is not None:
            ranks = [load for load in report.ranks if str(load.dp_rank) == wanted[-1]]
            report = replace(report, ranks=ranks)
        await send_json(send, 200, self._profile.loads(report))

    async def _get_load(self, _scope: Message, _receive: Receive, send: Send) -> None:
        assert self._profile.get_load is not None
        await send_json(send, 200, self._profile.get_load(await self._report()))

    async def _report(self) -> LoadReport:
        await self._faults.until_telling_load()
        return self._ranks.report()

    async def _metrics(self, _scope: Message, _receive: Receive, send: Send) -> None:
        body = metrics(self._settings, self._ranks.report(), self._faults)
        await send_bytes(send, 200, b"text/plain; version=0.0.4; charset=utf-8", body)

    async def _flush(self, _scope: Message, _receive: Receive, send: Send) -> None:
        flushed = self._ranks.flush()
        text = FLUSHED if flushed else NOT_FLUSHED
        await send_bytes(send, 200 if flushed else 400, b"text/plain; charset=utf-8", text)

    async def _abort(self, _scope: Message, receive: Receive, send: Send) -> None:
        body = decode(ABORT, await read_body(receive))
        if body.abort_all:
            self._ranks.abort_all()
        else:
            self._ranks.abort(body.rid)
        await send_bytes(send, 200, b"text/plain", b"")

    async def _show_faults(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, self._faults.shown())

    async def _set_faults(self, _scope: Message, receive: Receive, send: Send) -> None:
        faults = read_faults(await read_body(receive), self._settings.event_ring_batches)
        self._faults.set(faults)
        self._ranks.apply(faults)
        await send_json(send, 200, self._faults.shown())
