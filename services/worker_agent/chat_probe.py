"""A conversation that goes through an engine as a user's request does, for one token of an answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from kvcompass.self_test.probe import ProbeMessage
from services.runtime.rank_header import RANK_HEADER
from services.worker_agent.engine_client import EngineClient, EngineError, decoded

_CHAT: Final = "/v1/chat/completions"
_MODELS: Final = "/v1/models"

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=1 << 31)]


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: _Tokens | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: _Tokens | None = None
    prompt_tokens_details: _Details | None = None


class _Answer(msgspec.Struct, frozen=True):
    usage: _Usage | None = None


class _Model(msgspec.Struct, frozen=True):
    id: str


class _Models(msgspec.Struct, frozen=True):
    data: Annotated[list[_Model], msgspec.Meta(max_length=4_096)]


_ANSWER = msgspec.json.Decoder(_Answer)
_SERVED = msgspec.json.Decoder(_Models)


@dataclass(frozen=True, slots=True)
class ChatUsage:
    """What an engine says of a conversation that it answered; None where it does not."""

    prompt_tokens: int | None
    cached_tokens: int | None
    """Of it, reused. SGLang 0.5.10 leaves it out also where nothing was."""


async def chat(
    client: EngineClient,
    model: str,
    messages: Sequence[ProbeMessage],
    *,
    rank: int | None,
    timeout_s: float,
    salt: str = "",
) -> ChatUsage:
    """Send it. Errors: EngineError; NotThereError where there is no such route or model; DeniedError."""
    body = {
        "model": model,
        "messages": [{"role": each.role, "content": each.content} for each in messages],
        "max_tokens": 1,
        "temperature": 0,
        "stream": False,
        **({"cache_salt": salt} if salt else {}),
    }
    headers = {} if rank is None else {RANK_HEADER: str(rank)}
    answer = await client.post(_CHAT, msgspec.json.encode(body), timeout_s, headers=headers)
    usage = decoded(_ANSWER, answer, _CHAT).usage or _Usage()
    details = usage.prompt_tokens_details or _Details()
    return ChatUsage(usage.prompt_tokens, details.cached_tokens)


async def served_models(client: EngineClient) -> tuple[str, ...]:
    """The names that an engine answers to; none where it does not say."""
    try:
        return tuple(model.id for model in (await client.get(_MODELS, _SERVED)).data)
    except EngineError:
        return ()
