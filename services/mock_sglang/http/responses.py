"""Response bodies and stream chunks of the three generating routes, in SGLang's shape."""

import time
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from services.mock_sglang.generation import Generation
from services.mock_sglang.http.answers import Answer

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Reuse:
    """Prompt tokens that were not computed, and how a version tells of them."""

    cached_tokens: int
    host_tokens: int
    """Of these, tokens that came from the host tier."""
    dp_rank: int | None
    """The rank that served; None where there is one only."""
    uncached_details: dict[str, int] | None
    reported: bool
    """Whether OpenAI routes tell."""

    @property
    def details(self) -> dict[str, int] | None:
        """`meta_info.cached_tokens_details`."""
        if not self.cached_tokens:
            return None
        return {"device": self.cached_tokens - self.host_tokens, "host": self.host_tokens}

    @property
    def usage_details(self) -> dict[str, int] | None:
        """`usage.prompt_tokens_details`."""
        if not self.reported:
            return None
        return {"cached_tokens": self.cached_tokens} if self.cached_tokens else self.uncached_details


class ResponseForm(Protocol):
    """How one route writes an answer. A form serves one request and may keep what it has sent."""

    def whole(self, reuse: Reuse) -> dict[str, Any]:
        """The body of a response that is not streamed."""

    def chunks(self, generated: int, reuse: Reuse, finished: bool) -> list[bytes]:
        """Server-sent events for the tokens up to `generated` that were not sent yet."""


def sse(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


class _Form:
    def __init__(self, generation: Generation, answer: Answer, end_token: int | None) -> None:
        self.generation = generation
        self.answer = answer
        self.started = time.time()
        self.matched = end_token if answer.stopped else None
        self.sent = 0

    @property
    def reason(self) -> str:
        return "stop" if self.answer.stopped else "length"

    def take(self, generated: int) -> str:
        """Text not sent yet."""
        text = "".join(self.answer.pieces[self.sent : generated])
        self.sent = generated
        return text

    def usage(self, generated: int, reuse: Reuse) -> dict[str, Any]:
        prompt = len(self.generation.prompt)
        return {
            "prompt_tokens": prompt,
            "total_tokens": prompt + generated,
            "completion_tokens": generated,
            "prompt_tokens_details": reuse.usage_details,
            "reasoning_tokens": 0,
        }


class _OpenAiForm(_Form):
    kind = ""
    chunk_kind = ""

    def whole(self, reuse: Reuse) -> dict[str, Any]:
        choice = {
            "index": 0,
            **self._answer("".join(self.answer.pieces)),
            "logprobs": None,
            "finish_reason": self.reason,
            "matched_stop": self.matched,
        }
        return {
            "id": self.generation.id,
            "object": self.kind,
            "created": int(self.started),
            "model": self.generation.model,
            "choices": [choice],
            "usage": self.usage(len(self.answer.tokens), reuse),
            "metadata": {"weight_version": "default"},
        }

    def _answer(self, text: str) -> dict[str, Any]:
        raise NotImplementedError

    def _chunk(self, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> bytes:
        chunk = {
            "id": self.generation.id,
            "object": self.chunk_kind,
            "created": int(self.started),
            "model": self.generation.model,
            "choices": choices,
            "usage": usage,
        }
        return sse(chunk)

    def _usage_chunk(self, generated: int, reuse: Reuse) -> bytes:
        usage = self.usage(generated, reuse)
        # The last chunk leaves out what is null, unlike all others.
        return self._chunk([], {name: value for name, value in usage.items() if value is not None})


class ChatForm(_OpenAiForm):
    """/v1/chat/completions: a first chunk with the role, a last one with the finish reason."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    opened = False

    def chunks(self, generated: int, reuse: Reuse, finished: bool) -> list[bytes]:
        """See ResponseForm."""
        chunks = []
        if not self.opened:
            self.opened = True
            chunks.append(self._delta({"role": "assistant", "content": ""}))
        if text := self.take(generated):
            chunks.append(self._delta({"role": None, "content": text}))
        if finished:
            chunks.append(self._delta({"role": None, "content": None}, self.reason, self.matched))
            if self.generation.include_usage:
                chunks.append(self._usage_chunk(generated, reuse))
        return chunks

    def _answer(self, text: str) -> dict[str, Any]:
        return {
            "message": {
                "role": "assistant",
                "content": text,
                "reasoning_content": None,
                "tool_calls": None,
            }
        }

    def _delta(self, delta: dict[str, Any], reason: str | None = None, matched: int | None = None) -> bytes:
        choice = {
            "index": 0,
            "delta": {**delta, "reasoning_content": None, "tool_calls": None},
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": matched,
        }
        return self._chunk([choice])


class CompletionForm(_OpenAiForm):
    """/v1/completions: the finish reason rides on the last text."""

    kind = chunk_kind = "text_completion"

    def chunks(self, generated: int, reuse: Reuse, finished: bool) -> list[bytes]:
        """See ResponseForm."""
        choice = {
            "index": 0,
            "text": self.take(generated),
            "logprobs": None,
            "finish_reason": self.reason if finished else None,
            "matched_stop": self.matched if finished else None,
        }
        chunks = [self._chunk([choice])]
        if finished and self.generation.include_usage:
            chunks.append(self._usage_chunk(generated, reuse))
        return chunks

    def _answer(self, text: str) -> dict[str, Any]:
        return {"text": text}


class GenerateForm(_Form):
    """/generate: every chunk carries the whole text so far."""

    def whole(self, reuse: Reuse) -> dict[str, Any]:
        """See ResponseForm."""
        return self._body(len(self.answer.tokens), reuse, finished=True)

    def chunks(self, generated: int, reuse: Reuse, finished: bool) -> list[bytes]:
        """See ResponseForm."""
        return [sse(self._body(generated, reuse, finished))]

    def _body(self, generated: int, reuse: Reuse, finished: bool) -> dict[str, Any]:
        reason: dict[str, Any] | None = None
        if finished and self.answer.stopped:
            reason = {"type": "stop", "matched": self.matched}
        elif finished:
            reason = {"type": "length", "length": generated}
        return {
            "text": "".join(self.answer.pieces[:generated]),
            "output_ids": self.answer.tokens[:generated].tolist(),
            "meta_info": {
                "id": self.generation.id,
                "finish_reason": reason,
                "prompt_tokens": len(self.generation.prompt),
                "weight_version": "default",
                "total_retractions": 0,
                "reasoning_tokens": 0,
                "completion_tokens": generated,
                "cached_tokens": reuse.cached_tokens,
                "cached_tokens_details": reuse.details,
                "dp_rank": reuse.dp_rank,
                "e2e_latency": round(time.time() - self.started, 3),
            },
        }
