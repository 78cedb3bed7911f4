"""The generating routes: a body in, an answer out, whole or streamed; who leaves frees all that it held."""

import asyncio

import msgspec

from kvcompass.engine_model import EngineRequest, Rejection
from services.mock_sglang.errors import EngineError, bad_request, busy, failed, flat_error, unknown_model
from services.mock_sglang.faults import FaultSwitches
from services.mock_sglang.generation import Generation
from services.mock_sglang.http.answers import AnswerBook
from services.mock_sglang.http.asgi import (
    ClientGoneError,
    Message,
    Receive,
    Send,
    read_body,
    send_json,
    until_disconnect,
)
from services.mock_sglang.http.requests import (
    CHAT,
    COMPLETION,
    GENERATE,
    TOKENIZE,
    RequestReader,
    decode,
)
from services.mock_sglang.http.responses import (
    DONE,
    ChatForm,
    CompletionForm,
    GenerateForm,
    ResponseForm,
    Reuse,
    sse,
)
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.ranks.all_ranks import Ranks
from services.mock_sglang.ranks.engine_loop import Flight
from services.mock_sglang.ranks.rank import Rank
from services.mock_sglang.ranks.roles import Part, Role
from services.mock_sglang.settings import MockSettings
from services.prompt import PromptEncoder

SSE_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]

FormClass = type[ChatForm] | type[CompletionForm] | type[GenerateForm]


class Generating:
    """The routes over all ranks; /tokenize beside them, which reads as they do."""

    def __init__(
        self,
        settings: MockSettings,
        encoder: PromptEncoder,
        ranks: Ranks,
        role: Role,
        faults: FaultSwitches,
    ) -> None:
        self._settings = settings
        self._uncached_details = PROFILES[settings.event_profile].uncached_details
        self._reader = RequestReader(encoder, settings, lambda: faults.now.chat_drift)
        self._answers = AnswerBook(encoder)
        self._ranks = ranks
        self._role = role
        self._faults = faults

    async def chat(self, scope: Message, receive: Receive, send: Send) -> None:
        """/v1/chat/completions."""
        body = decode(CHAT, await _json_body(scope, receive))
        self.check_model(body.model)
        generation = _pinned(scope, await self._reader.chat(body))
        await self._respond(generation, ChatForm, receive, send)

    async def completion(self, scope: Message, receive: Receive, send: Send) -> None:
        """/v1/completions."""
        body = decode(COMPLETION, await _json_body(scope, receive))
        self.check_model(body.model)
        generation = _pinned(scope, await self._reader.completion(body))
        await self._respond(generation, CompletionForm, receive, send)

    async def generate(self, _scope: Message, receive: Receive, send: Send) -> None:
        """/generate."""
        body = decode(GENERATE, await read_body(receive))
        await self._respond(await self._reader.generate(body), GenerateForm, receive, send)

    async def tokenize(self, scope: Message, receive: Receive, send: Send) -> None:
        """/tokenize."""
        tokens = await self._reader.tokenize(decode(TOKENIZE, await _json_body(scope, receive)))
        limit = self._settings.context_length
        await send_json(send, 200, {"tokens": tokens.tolist(), "count": len(tokens), "max_model_len": limit})

    def check_model(self, model: str) -> None:
        """Errors: EngineError 404."""
        if model != self._settings.model:
            raise unknown_model(model)

    async def _respond(
        self, generation: Generation, form_class: FormClass, receive: Receive, send: Send
    ) -> None:
        if self._faults.fails():
            self._role.ended(generation, None)
            raise failed("Internal server error.")
        rank = self._ranks.choose(generation)
        watch = asyncio.create_task(until_disconnect(receive))
        try:
            part = await self._part(generation, watch)
            await self._run(generation, part, rank, form_class, watch, send)
        finally:
            watch.cancel()

    async def _part(self, generation: Generation, watch: asyncio.Task[None]) -> Part:
        """What to compute, once that can begin. Errors: EngineError; ClientGoneError before it could."""
        asked = asyncio.create_task(self._role.part(generation), name="part of a request")
        try:
            await asyncio.wait((asked, watch), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise ClientGoneError
            return asked.result()
        finally:
            asked.cancel()

    async def _run(
        self,
        generation: Generation,
        part: Part,
        rank: Rank,
        form_class: FormClass,
        watch: asyncio.Task[None],
        send: Send,
    ) -> None:
        """Compute this engine's part of a generation and write it. `watch` ends when the client leaves."""
        answer = self._answers.answer(generation.prompt, part.limit, ignore_end=generation.ignore_eos)
        request = EngineRequest(
            generation.id,
            generation.prompt,
            answer.tokens,
            workload=generation.workload,
            transferred=part.transfer is not None,
            scope=generation.scope,
        )
        flight = rank.engine.submit(request)
        if isinstance(flight, Rejection):
            self._role.ended(generation, None)
            raise _refused(flight)

        def leave(_: asyncio.Task[None]) -> None:
            rank.engine.abort(generation.id)

        watch.add_done_callback(leave)
        form = form_class(generation, answer, self._answers.end_token)
        try:
            if generation.stream:
                await self._stream(flight, form, part, rank, send)
                return
            while not (flight.finished or flight.aborted):
                await flight.progress()
            if flight.aborted:
                raise flight.aborted
            await send_json(send, 200, form.whole(self._reuse(flight, part, rank)))
        finally:
            watch.remove_done_callback(leave)
            rank.engine.abort(generation.id)
            self._role.ended(generation, flight)

    async def _stream(self, flight: Flight, form: ResponseForm, part: Part, rank: Rank, send: Send) -> None:
        """Headers go out with the first token, so a request that fails before has a proper status."""
        started = False
        while True:
            generated = await flight.progress()
            if flight.aborted and not started:
                raise flight.aborted
            if not started:
                started = True
                await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
            if flight.aborted:
                body = sse({"error": flight.aborted.body}) + DONE
                await send({"type": "http.response.body", "body": body})
                return
            reuse = self._reuse(flight, part, rank)
            body = b"".join(form.chunks(generated, reuse, flight.finished))
            if flight.finished:
                await send({"type": "http.response.body", "body": body + DONE})
                return
            await send({"type": "http.response.body", "body": body, "more_body": True})

    def _reuse(self, flight: Flight, part: Part, rank: Rank) -> Reuse:
        """What was reused; a decode engine tells its prefill engine's numbers."""
        source = flight if part.transfer is None else part.transfer
        return Reuse(
            source.cached_tokens,
            source.host_tokens,
            rank.number if self._settings.dp_size > 1 else None,
            self._uncached_details,
            self._settings.enable_cache_report,
        )


async def _json_body(scope: Message, receive: Receive) -> bytes:
    headers = dict(scope["headers"])
    media_type = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if media_type != b"application/json":
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise EngineError(400, flat_error(400, message, "Bad Request"))
    return await read_body(receive)


def _pinned(scope: Message, generation: Generation) -> Generation:
    """The OpenAI routes' header goes before the body's rank. Errors: EngineError 400."""
    given = dict(scope["headers"]).get(b"x-data-parallel-rank")
    if given is None:
        return generation
    try:
        return msgspec.structs.replace(generation, dp_rank=int(given))
    except ValueError as error:
        message = f"Invalid X-Data-Parallel-Rank header: must be an integer, got '{given.decode('latin-1')}'"
        raise EngineError(400, flat_error(400, message, "400")) from error


def _refused(rejection: Rejection) -> EngineError:
    if rejection is Rejection.QUEUE_FULL:
        return busy("The request queue is full.")
    return bad_request(rejection.value)
