"""The HTTP face: routes, streams, aborts."""

import asyncio
from collections.abc import Awaitable, Callable

from kvcompass.engine_model import EngineRequest, Rejection
from services.mock_sglang import info
from services.mock_sglang.answers import AnswerBook
from services.mock_sglang.asgi import (
    ClientGoneError,
    Message,
    Receive,
    Send,
    read_body,
    send_bytes,
    send_json,
    until_disconnect,
)
from services.mock_sglang.engine_loop import EngineLoop, Flight
from services.mock_sglang.errors import EngineError, bad_request, busy, flat_error, unknown_model
from services.mock_sglang.requests import (
    ABORT,
    CHAT,
    COMPLETION,
    GENERATE,
    Generation,
    RequestReader,
    decode,
)
from services.mock_sglang.responses import (
    DONE,
    ChatForm,
    CompletionForm,
    GenerateForm,
    ResponseForm,
    sse,
)
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder

Handler = Callable[[Message, Receive, Send], Awaitable[None]]

SSE_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class MockApp:
    """A plain ASGI application over one engine."""

    def __init__(self, settings: MockSettings, encoder: PromptEncoder, engine: EngineLoop) -> None:
        self._settings = settings
        self._reader = RequestReader(encoder, settings.context_length)
        self._answers = AnswerBook(encoder)
        self._engine = engine
        self._started = info.now()
        self.stopping = False
        """Set at shutdown: health turns 503 while running requests end."""
        self._routes: dict[tuple[str, str], Handler] = {
            ("POST", "/v1/chat/completions"): self._chat,
            ("POST", "/v1/completions"): self._completion,
            ("POST", "/generate"): self._generate,
            ("PUT", "/generate"): self._generate,
            ("GET", "/v1/models"): self._models,
            ("GET", "/health"): self._health,
            ("GET", "/health_generate"): self._health,
            ("GET", "/ping"): self._health,
            ("GET", "/server_info"): self._server_info,
            ("GET", "/get_server_info"): self._server_info,
            ("GET", "/v1/loads"): self._loads,
            ("GET", "/metrics"): self._metrics,
            ("POST", "/flush_cache"): self._flush,
            ("GET", "/flush_cache"): self._flush,
            ("POST", "/abort_request"): self._abort,
        }
        self._paths = {path for _, path in self._routes}

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self._handler(scope)(scope, receive, send)
        except EngineError as error:
            await send_json(send, error.status, error.body, error.headers)
        except ClientGoneError:
            return

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

    async def _chat(self, scope: Message, receive: Receive, send: Send) -> None:
        body = decode(CHAT, await _json_body(scope, receive))
        self._check_model(body.model)
        await self._respond(await self._reader.chat(body), ChatForm, receive, send)

    async def _completion(self, scope: Message, receive: Receive, send: Send) -> None:
        body = decode(COMPLETION, await _json_body(scope, receive))
        self._check_model(body.model)
        await self._respond(await self._reader.completion(body), CompletionForm, receive, send)

    async def _generate(self, _scope: Message, receive: Receive, send: Send) -> None:
        body = decode(GENERATE, await read_body(receive))
        await self._respond(await self._reader.generate(body), GenerateForm, receive, send)

    async def _respond(
        self,
        generation: Generation,
        form_class: type[ChatForm] | type[CompletionForm] | type[GenerateForm],
        receive: Receive,
        send: Send,
    ) -> None:
        """Run a generation and write it; a client that leaves aborts it, which frees all it holds."""
        answer = self._answers.answer(generation.prompt, generation.limit, ignore_end=generation.ignore_eos)
        flight = self._engine.submit(EngineRequest(generation.id, generation.prompt, answer.tokens))
        if isinstance(flight, Rejection):
            raise _refused(flight)
        form = form_class(generation, answer, self._answers.end_token)
        watch = asyncio.create_task(until_disconnect(receive))
        watch.add_done_callback(lambda _: self._engine.abort(generation.id))
        try:
            if generation.stream:
                await _stream(flight, form, send)
            else:
                while not (flight.finished or flight.aborted):
                    await flight.progress()
                if flight.aborted:
                    raise _aborted()
                await send_json(send, 200, form.whole(flight.cached_tokens))
        finally:
            watch.cancel()
            self._engine.abort(generation.id)

    async def _models(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, info.models(self._settings, self._started))

    async def _model(self, scope: Message, _receive: Receive, send: Send) -> None:
        self._check_model(scope["path"].removeprefix("/v1/models/"))
        await send_json(send, 200, info.model_card(self._settings, self._started))

    async def _health(self, _scope: Message, _receive: Receive, send: Send) -> None:
        if not self.stopping:
            await asyncio.sleep(self._settings.health_delay_s)
        await send_bytes(send, 503 if self.stopping else 200, b"text/plain", b"")

    async def _server_info(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, info.server_info(self._settings, self._engine.load()))

    async def _loads(self, _scope: Message, _receive: Receive, send: Send) -> None:
        await send_json(send, 200, info.loads(self._settings, self._engine.load()))

    async def _metrics(self, _scope: Message, _receive: Receive, send: Send) -> None:
        body = info.metrics(self._settings, self._engine.load())
        await send_bytes(send, 200, b"text/plain; version=0.0.4; charset=utf-8", body)

    async def _flush(self, _scope: Message, _receive: Receive, send: Send) -> None:
        flushed = self._engine.flush()
        text = b"Cache flushed.\n" if flushed else b"Flush cache failed: requests are running or waiting.\n"
        await send_bytes(send, 200 if flushed else 400, b"text/plain; charset=utf-8", text)

    async def _abort(self, _scope: Message, receive: Receive, send: Send) -> None:
        body = decode(ABORT, await read_body(receive))
        if body.abort_all:
            self._engine.abort_all()
        else:
            self._engine.abort(body.rid)
        await send_bytes(send, 200, b"text/plain", b"")

    def _check_model(self, model: str) -> None:
        if model != self._settings.model:
            raise unknown_model(model)


async def _json_body(scope: Message, receive: Receive) -> bytes:
    headers = dict(scope["headers"])
    media_type = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if media_type != b"application/json":
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise EngineError(400, flat_error(400, message, "Bad Request"))
    return await read_body(receive)


async def _stream(flight: Flight, form: ResponseForm, send: Send) -> None:
    """Headers go out with the first token, so a request that fails before has a proper status."""
    started = False
    while True:
        generated = await flight.progress()
        if flight.aborted and not started:
            raise _aborted()
        if not started:
            started = True
            await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        if flight.aborted:
            body = sse({"error": _aborted().body}) + DONE
            await send({"type": "http.response.body", "body": body})
            return
        body = b"".join(form.chunks(generated, flight.cached_tokens, flight.finished))
        if flight.finished:
            await send({"type": "http.response.body", "body": body + DONE})
            return
        await send({"type": "http.response.body", "body": body, "more_body": True})


def _aborted() -> EngineError:
    return EngineError(400, flat_error(400, "Generation aborted.", "BadRequest"))


def _refused(rejection: Rejection) -> EngineError:
    if rejection is Rejection.QUEUE_FULL:
        return busy("The request queue is full.")
    return bad_request(rejection.value)
