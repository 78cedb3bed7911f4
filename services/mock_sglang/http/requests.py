"""Request bodies: the fields that matter here, checked; all others are let through, as engines do."""

import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from services.mock_sglang.errors import EngineError, bad_request, flat_error
from services.mock_sglang.generation import Bootstrap, Generation
from services.mock_sglang.profiles import PROFILES
from services.mock_sglang.profiles.map_events import join_scope
from services.mock_sglang.prompt_drift import DriftName, drifted_chat
from services.mock_sglang.settings import DEFAULT_BOOTSTRAP_PORT, MockSettings
from services.prompt import PromptEncoder, PromptError

T = TypeVar("T")
Prompt = str | list[int | str | list[int]]


class StreamOptions(msgspec.Struct, frozen=True):
    """`stream_options`."""

    include_usage: bool | None = False


class EngineFields(msgspec.Struct, frozen=True, kw_only=True):
    """What all generating routes take."""

    stream: bool | None = False
    rid: str | None = None
    routed_dp_rank: int | None = None
    data_parallel_rank: int | None = None
    """The older name of `routed_dp_rank`."""
    bootstrap_host: str | None = None
    bootstrap_port: int | None = None
    bootstrap_room: int | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    lora_path: str | None = None


class ChatBody(EngineFields, frozen=True, kw_only=True):
    """/v1/chat/completions."""

    model: str
    messages: list[Any]
    input_ids: list[int] | None = None
    tools: list[Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    ignore_eos: bool = False
    n: int | None = 1
    stream_options: StreamOptions | None = None


class CompletionBody(EngineFields, frozen=True, kw_only=True):
    """/v1/completions."""

    model: str
    prompt: Prompt
    max_tokens: int | None = 16
    ignore_eos: bool = False
    n: int | None = 1
    stream_options: StreamOptions | None = None


class SamplingParams(msgspec.Struct, frozen=True):
    """`sampling_params` of /generate."""

    max_new_tokens: int | None = 128
    ignore_eos: bool = False
    n: int | None = 1


class GenerateBody(EngineFields, frozen=True, kw_only=True):
    """/generate, SGLang's native route."""

    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: SamplingParams = SamplingParams()


class TokenizeBody(msgspec.Struct, frozen=True):
    """/tokenize; `messages` from 0.5.23 on."""

    prompt: str | None = None
    messages: list[Any] | None = None
    tools: list[Any] | None = None


class AbortBody(msgspec.Struct, frozen=True):
    """/abort_request."""

    rid: str = ""
    abort_all: bool = False


CHAT = msgspec.json.Decoder(ChatBody)
COMPLETION = msgspec.json.Decoder(CompletionBody)
GENERATE = msgspec.json.Decoder(GenerateBody)
TOKENIZE = msgspec.json.Decoder(TokenizeBody)
ABORT = msgspec.json.Decoder(AbortBody)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Parse a body. Raises EngineError 400 naming the JSON path."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineError(400, flat_error(400, str(error), "Bad Request")) from error


class RequestReader:
    """Turns bodies into generations: tokens, limits, ids."""

    def __init__(
        self, encoder: PromptEncoder, settings: MockSettings, drift: Callable[[], DriftName | None]
    ) -> None:
        """`drift` is asked how chats are misread now."""
        self._encoder = encoder
        self._drift = drift
        self._context_length = settings.context_length
        self._profile = PROFILES[settings.event_profile]
        self._adapters = frozenset(settings.lora_names)

    async def chat(self, body: ChatBody) -> Generation:
        """Raises EngineError."""
        if body.input_ids is not None and self._profile.chat_token_ids:
            prompt = self._token_ids(body.input_ids, "input_ids")
        else:
            prompt = await self._chat_tokens(body.messages, body.tools)
        # Zero means "not set" on this route, in SGLang too.
        limit = body.max_completion_tokens or body.max_tokens
        _positive("max_tokens", limit)
        workload = f"chat {1 + len(body.messages) // 2}"
        return self._generation(body, prompt, limit, body.ignore_eos, body.n, workload)

    async def tokenize(self, body: TokenizeBody) -> NDArray[np.int32]:
        """Raises EngineError."""
        messages = body.messages if self._profile.chat_token_ids else None
        if (body.prompt is None) == (messages is None):
            raise bad_request("Exactly one of 'prompt' or 'messages' must be provided.", "prompt")
        if messages is not None:
            return await self._chat_tokens(messages, body.tools)
        assert body.prompt is not None
        return await self._encoder.encode_async(body.prompt)

    async def _chat_tokens(self, messages: list[Any], tools: list[Any] | None) -> NDArray[np.int32]:
        drift = self._drift()
        try:
            if drift is not None:
                return await drifted_chat(self._encoder, drift, messages, tools)
            text = self._encoder.render_chat(messages, tools)
        except PromptError as error:
            raise bad_request(f"{error.field}: {error}", error.field) from error
        return await self._encoder.encode_async(text, rendered=True)

    async def completion(self, body: CompletionBody) -> Generation:
        """Raises EngineError."""
        prompt = body.prompt
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
            prompt = prompt[0]
        elif isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list):
            prompt = list(prompt[0])
        if not prompt:
            raise bad_request("Prompt cannot be empty", "prompt")
        if isinstance(prompt, str):
            tokens = await self._encoder.encode_async(prompt)
        elif isinstance(prompt[0], int):
            tokens = self._token_ids(prompt, "prompt")
        else:
            raise bad_request("one prompt a request is supported", "prompt")
        limit = 16 if body.max_tokens is None else body.max_tokens
        if limit <= 0:
            raise bad_request("max_tokens must be positive", "max_tokens")
        return self._generation(body, tokens, limit, body.ignore_eos, body.n, "completion")

    async def generate(self, body: GenerateBody) -> Generation:
        """Raises EngineError."""
        if body.input_ids is not None:
            tokens = self._token_ids(body.input_ids, "input_ids")
        elif body.text is not None:
            tokens = await self._encoder.encode_async(body.text)
        else:
            raise bad_request("Either text or input_ids should be provided.")
        params = body.sampling_params
        _positive("max_new_tokens", params.max_new_tokens)
        return self._generation(body, tokens, params.max_new_tokens, params.ignore_eos, params.n, "generate")

    def _token_ids(self, ids: object, field: str) -> NDArray[np.int32]:
        try:
            tokens = np.array(ids)
        except ValueError as error:
            raise bad_request(f"{field} must be a flat list of token ids", field) from error
        if tokens.size == 0:
            return np.zeros(0, dtype=np.int32)
        if tokens.dtype != np.int64 or tokens.ndim != 1 or tokens.min() < 0 or tokens.max() >= 2**31:
            raise bad_request(f"{field} must be a flat list of token ids", field)
        return tokens.astype(np.int32)

    def _generation(
        self,
        body: ChatBody | CompletionBody | GenerateBody,
        prompt: NDArray[np.int32],
        limit: int | None,
        ignore_eos: bool,
        n: int | None,
        workload: str,
    ) -> Generation:
        if n not in (None, 1):
            raise bad_request("n: this engine answers once a request; n must be 1", "n")
        length, context = len(prompt), self._context_length
        if length == 0:
            raise bad_request("The input is empty.")
        if length >= context:
            raise bad_request(
                f"The input ({length} tokens) is longer than the model's context length ({context} tokens)."
            )
        if limit is not None and length + limit >= context:
            raise bad_request(
                f"Requested token count exceeds the model's maximum context length of {context} tokens. "
                f"You requested a total of {length + limit} tokens: {length} tokens from the input messages "
                f"and {limit} tokens for the completion."
            )
        rank = body.data_parallel_rank if body.routed_dp_rank is None else body.routed_dp_rank
        options = None if isinstance(body, GenerateBody) else body.stream_options
        return Generation(
            id=body.rid or uuid.uuid4().hex,
            prompt=prompt,
            limit=context - length - 1 if limit is None else limit,
            ignore_eos=ignore_eos,
            stream=bool(body.stream),
            include_usage=bool(options and options.include_usage),
            model="" if isinstance(body, GenerateBody) else body.model,
            dp_rank=rank,
            bootstrap=_bootstrap(body),
            scope=self._scope(body),
            workload=workload,
        )

    def _scope(self, body: EngineFields) -> str:
        if body.extra_key and not self._profile.extra_key:
            raise bad_request("extra_key: this engine separates caches by cache_salt", "extra_key")
        if body.lora_path and body.lora_path not in self._adapters:
            raise bad_request(f"The LoRA adapter {body.lora_path} is not loaded.", "lora_path")
        salt = (body.cache_salt or "") + (body.extra_key or "") if self._profile.salts else ""
        return join_scope(salt, body.lora_path or "")


def _bootstrap(body: EngineFields) -> Bootstrap | None:
    if body.bootstrap_room is None:
        return None
    port = DEFAULT_BOOTSTRAP_PORT if body.bootstrap_port is None else body.bootstrap_port
    return Bootstrap(body.bootstrap_host or "", port, body.bootstrap_room)


def _positive(name: str, value: int | None) -> None:
    if value is not None and value < 0:
        raise bad_request(f"{name} must be at least 0, got {value}.", name)
