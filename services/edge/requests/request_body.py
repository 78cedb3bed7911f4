"""The JSON body of a request: what routing needs of it, and the one edit that forwarding may need."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from services.edge.requests.errors import bad_request, model_not_found

_ASK_USAGE = b'"stream_options":{"include_usage":true}}'
_LARGEST_TOKEN = 2**31 - 1
_COMPLETION_TOKENS = 16
"""Of an answer to a completion that does not say."""
_OWN_CACHE_FIELDS = ("cache_salt", "extra_key", "lora_path", "input_embeds")
"""Fields by which an engine keeps a request's blocks apart, or whose tokens the edge cannot know."""


class Endpoint(StrEnum):
    """The two routes that reach an engine; the values are metric labels."""

    CHAT = "chat"
    COMPLETIONS = "completions"

    @property
    def path(self) -> str:
        """Path on the edge and on the engine."""
        return "/v1/chat/completions" if self is Endpoint.CHAT else "/v1/completions"


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A parsed request. `body` is what is forwarded: the client's bytes unless usage had to be asked for."""

    endpoint: Endpoint
    body: bytes
    stream: bool
    strip_usage: bool
    """The edge asked for the usage chunk, the client did not."""
    choices: int
    keyed: bool
    """False when the engine would share no cache with others under this prompt's tokens."""
    answer_tokens: float = inf
    """The longest answer that is asked for."""
    messages: Any = None
    tools: Any = None
    text: str | None = None
    tokens: NDArray[np.int32] | None = None


def parse_request(endpoint: Endpoint, body: bytes, served_model: str) -> ModelRequest:
    """Reads a body once. Other fields are forwarded as they came. Errors: ApiError naming the field."""
    parsed = _parse_object(body)
    model = parsed.get("model")
    if not isinstance(model, str) or not model:
        raise bad_request(f"model is required; this fleet serves {served_model!r}", "model")
    if model != served_model:
        raise model_not_found(model, served_model)
    stream = parsed.get("stream") or False
    if not isinstance(stream, bool):
        raise bad_request("stream must be true or false", "stream")
    forwarded, strip_usage = _ask_usage(body, parsed) if stream else (body, False)
    choices = _choices(parsed)
    answer_tokens = _answer_tokens(endpoint, parsed)
    keyed = not any(parsed.get(field) for field in _OWN_CACHE_FIELDS)
    if endpoint is Endpoint.CHAT:
        if "messages" not in parsed:
            raise bad_request("messages is required", "messages")
        return ModelRequest(
            endpoint,
            forwarded,
            stream,
            strip_usage,
            choices,
            keyed,
            answer_tokens,
            parsed["messages"],
            parsed.get("tools"),
        )
    text, tokens = _prompt(parsed)
    return ModelRequest(
        endpoint, forwarded, stream, strip_usage, choices, keyed, answer_tokens, text=text, tokens=tokens
    )


def guess_endpoint(body: bytes) -> Endpoint:
    """Which endpoint a body is meant for: `messages` makes it chat. Errors: ApiError when it is not JSON."""
    return Endpoint.CHAT if "messages" in _parse_object(body) else Endpoint.COMPLETIONS


def _parse_object(body: bytes) -> dict[str, Any]:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise bad_request("the body must be a JSON object")
    return parsed


def _ask_usage(body: bytes, parsed: dict[str, Any]) -> tuple[bytes, bool]:
    options = parsed.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise bad_request("stream_options must be an object", "stream_options")
    if options is not None and options.get("include_usage"):
        return body, False
    if "stream_options" not in parsed:
        # The object has at least `stream`, so its last brace follows a member: splice instead of re-encoding.
        return body.rstrip()[:-1] + b"," + _ASK_USAGE, True
    asked = {**parsed, "stream_options": {**(options or {}), "include_usage": True}}
    try:
        return orjson.dumps(asked), True
    except orjson.JSONEncodeError as error:
        # It reads deeper nesting than it writes.
        raise bad_request(f"the body cannot be completed with stream_options: {error}") from error


def _choices(parsed: dict[str, Any]) -> int:
    choices = 1
    for field in ("n", "best_of"):
        value = parsed.get(field)
        if isinstance(value, int):
            choices = max(choices, value)
    return choices


def _answer_tokens(endpoint: Endpoint, parsed: dict[str, Any]) -> float:
    """As engines read it: of a chat the first that is set, 0 being unset; else `max_tokens` alone."""
    chat = endpoint is Endpoint.CHAT
    for field in ("max_completion_tokens", "max_tokens") if chat else ("max_tokens",):
        value = parsed.get(field)
        if type(value) is int and value >= chat:
            return value
    return inf if chat else _COMPLETION_TOKENS


def _prompt(parsed: dict[str, Any]) -> tuple[str | None, NDArray[np.int32] | None]:
    prompt = parsed.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt, None
    if not isinstance(prompt, list) or not prompt:
        raise bad_request("prompt must be a string or a list of token ids, not empty", "prompt")
    if isinstance(prompt[0], str | list):
        raise bad_request(
            f"prompt holds {len(prompt)} prompts, each may belong to another worker: send a request for each",
            "prompt",
        )
    return None, _token_ids(prompt)


def _token_ids(ids: list[Any]) -> NDArray[np.int32]:
    # The types first: an array of mixed items is as wide as its longest string, times its length.
    if set(map(type, ids)) == {int} and min(ids) >= 0 and max(ids) <= _LARGEST_TOKEN:
        return np.array(ids, dtype=np.int32)
    raise bad_request(f"prompt must hold token ids only, from 0 to {_LARGEST_TOKEN}", "prompt")
