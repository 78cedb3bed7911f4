"""From a parsed request to what routing sees of its prompt: a token count and prefix keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvcompass.keys import namespace, prefix_keys
from kvcompass.plan.model import Plan
from services.edge.requests.errors import bad_request, context_exceeded
from services.edge.requests.request_body import ModelRequest
from services.prompt import PromptEncoder, PromptError

_BYTES_PER_TOKEN = 4
_NO_KEYS: NDArray[np.uint64] = np.empty(0, dtype=np.uint64)


class Unkeyed(StrEnum):
    """Why a prompt has no keys and is routed by load alone; the values are metric labels."""

    OWN_CACHE = "own_cache"
    """The engine keeps this request's blocks apart from all others."""
    NOT_TEXT = "not_text"
    """Images or audio: the engine's tokens cannot be known here."""


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What routing sees of a prompt; the text and the tokens are not kept."""

    tokens: int
    keys: NDArray[np.uint64]
    """uint64[n]: keys of the first n rungs of the query plan that fit into all tokens but the last."""
    unkeyed: Unkeyed | None = None


class PromptReader:
    """Renders, tokenizes and keys prompts exactly as the engines do."""

    def __init__(self, encoder: PromptEncoder, plan: Plan, rungs: NDArray[np.int32]) -> None:
        self._encoder = encoder
        self.apply_plan(plan, rungs)
        self._namespaces: Mapping[str, bytes] = {
            group.id: namespace(plan.model, group.salt) for group in plan.sharing_groups
        }

    def apply_plan(self, plan: Plan, rungs: NDArray[np.int32]) -> None:
        """Keys prompts at these lengths (int32[n]) from now on, those being tokenized too."""
        self._context = plan.model.context_length
        self._longest = self._context * self._encoder.longest_token
        """Characters: any longer text has more tokens than the context."""
        self._rungs = rungs

    async def read(self, request: ModelRequest, group: str) -> Prompt:
        """Long texts are tokenized off the event loop, those that cannot fit the context not at all.

        Errors: ApiError 400 naming the field.
        """
        unkeyed = _unkeyed(request)
        if unkeyed is not None:
            return Prompt(max(1, len(request.body) // _BYTES_PER_TOKEN), _NO_KEYS, unkeyed)
        tokens = await self._tokens(request)
        # An engine reuses at most all tokens but the last.
        keys = prefix_keys(self._namespaces[group], tokens[:-1], self._rungs)
        return Prompt(len(tokens), keys)

    async def _tokens(self, request: ModelRequest) -> NDArray[np.int32]:
        if request.tokens is not None:
            return request.tokens
        if request.text is not None:
            return await self._encode(request.text, "prompt", rendered=False)
        try:
            text = self._encoder.render_chat(request.messages, request.tools)
        except PromptError as error:
            raise bad_request(f"{error.field}: {error}", error.field) from error
        return await self._encode(text, "messages", rendered=True)

    async def _encode(self, text: str, field: str, *, rendered: bool) -> NDArray[np.int32]:
        if len(text) > self._longest:
            # Seconds in a thread of two, which nobody can cancel, for an engine to say the same.
            raise context_exceeded(self._context, field)
        return await self._encoder.encode_async(text, rendered=rendered)


def _unkeyed(request: ModelRequest) -> Unkeyed | None:
    if not request.keyed:
        return Unkeyed.OWN_CACHE
    if isinstance(request.messages, list) and any(_has_media(message) for message in request.messages):
        return Unkeyed.NOT_TEXT
    return None


def _has_media(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, Sequence) or isinstance(content, str):
        return False
    return any(isinstance(part, dict) and part.get("type", "text") != "text" for part in content)
