"""How an engine is asked to go through a prefix and generate nothing, and to stop."""

import uuid
from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from services.runtime.rank_header import RANK_HEADER
from services.worker_agent.engine_client import DeniedError, EngineClient, EngineError, decoded

_LOWEST: Final = 1 << 63
_ABORT_S: Final = 2.0
"""For the answer to an abort: the engine only notes it."""


class PrefillCall(Protocol):
    """One call. Cancelling `run` closes its connection."""

    async def run(self, timeout_s: float) -> None:
        """Returns once the engine went through the prefix. Errors: EngineError."""

    async def abort(self) -> None:
        """Tell the engine to stop where closing the connection does not. Errors: EngineError."""


class PrefillCalls(Protocol):
    """Makes the calls of one engine."""

    async def prepare(self) -> None:
        """The engine may be another: learn what it takes. Errors: EngineError."""

    def call(self, tokens: NDArray[np.int32]) -> PrefillCall:
        """The call for a prefix: int32[n]."""


class _Scheduling(msgspec.Struct, frozen=True):
    """Of `/server_info`: the server's arguments. One of another type is as good as none."""

    enable_priority_scheduling: Any = False
    schedule_low_priority_values_first: Any = False


class _FinishReason(msgspec.Struct, frozen=True):
    type: str = ""


class _MetaInfo(msgspec.Struct, frozen=True):
    finish_reason: _FinishReason | None = None


class _Answer(msgspec.Struct, frozen=True):
    """Of `/generate`; an aborted request is answered like one that has ended."""

    meta_info: _MetaInfo


_INFO = msgspec.json.Decoder(_Scheduling)
_ANSWER = msgspec.json.Decoder(_Answer)


class SglangCalls:
    """`/generate` with `max_new_tokens: 0`, at the lowest priority where the engine schedules by priority.

    That priority is the one that SGLang itself gives to requests which name none, so that nobody's waits
    behind a replica that came later. Elsewhere a priority may be an error and is not sent.
    """

    def __init__(self, client: EngineClient, rank: int | None) -> None:
        """`rank` pins the calls to a data-parallel rank."""
        self._client = client
        self._fields: dict[str, Any] = {} if rank is None else {"routed_dp_rank": rank}
        self._priority: int | None = None

    async def prepare(self) -> None:
        """Errors: EngineError."""
        told = await self._client.get("/server_info", _INFO)
        self._priority = None
        if told.enable_priority_scheduling is True:
            self._priority = _LOWEST - 1 if told.schedule_low_priority_values_first is True else -_LOWEST

    def call(self, tokens: NDArray[np.int32]) -> "PrefillCall":
        """See PrefillCalls."""
        rid = f"kvcompass-replica-{uuid.uuid4().hex}"
        body = {
            "rid": rid,
            "input_ids": tokens,
            "sampling_params": {"max_new_tokens": 0, "temperature": 0.0},
            **self._fields,
        }
        if self._priority is not None:
            body["priority"] = self._priority
        return _SglangCall(self._client, rid, orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))


class _SglangCall:
    def __init__(self, client: EngineClient, rid: str, body: bytes) -> None:
        self._client = client
        self._rid = rid
        self._body = body

    async def run(self, timeout_s: float) -> None:
        said = await _prefilled(self._client, "/generate", self._body, timeout_s)
        answer = decoded(_ANSWER, said, "/generate")
        reason = answer.meta_info.finish_reason
        if reason is not None and reason.type == "abort":
            raise EngineError("/generate: the engine aborted it", field="/generate")

    async def abort(self) -> None:
        """SGLang looks for a closed connection every few seconds only."""
        await self._client.post("/abort_request", orjson.dumps({"rid": self._rid}), _ABORT_S)


class VllmCalls:
    """`/v1/completions` with one token: vLLM refuses none (`max_tokens must be at least 1`).

    The token costs one decode step and enters no full block. Whether vLLM schedules by priority it tells
    nobody, and it refuses a priority where it does not: none is sent.
    """

    def __init__(self, client: EngineClient, model: str, rank: int | None) -> None:
        """`model` is the name it serves; `rank` pins the calls to a data-parallel rank."""
        self._client = client
        self._model = model
        self._headers = {} if rank is None else {RANK_HEADER: str(rank)}

    async def prepare(self) -> None:
        """Nothing is to be learned."""

    def call(self, tokens: NDArray[np.int32]) -> "PrefillCall":
        """See PrefillCalls."""
        body = {"model": self._model, "prompt": tokens, "max_tokens": 1, "temperature": 0.0}
        return _VllmCall(self._client, orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), self._headers)


class _VllmCall:
    def __init__(self, client: EngineClient, body: bytes, headers: dict[str, str]) -> None:
        self._client = client
        self._body = body
        self._headers = headers

    async def run(self, timeout_s: float) -> None:
        await _prefilled(self._client, "/v1/completions", self._body, timeout_s, self._headers)

    async def abort(self) -> None:
        """Closing the connection is enough."""


def prefill_calls(kind: str, client: EngineClient, model: str, rank: int | None) -> PrefillCalls:
    """Those of an engine of this kind."""
    return VllmCalls(client, model, rank) if kind == "vllm" else SglangCalls(client, rank)


async def _prefilled(
    client: EngineClient, path: str, body: bytes, timeout_s: float, headers: Mapping[str, str] | None = None
) -> bytes:
    """The answer. Errors: EngineError, without what the engine says: it may repeat the tokens of a prompt."""
    try:
        return await client.post(path, body, timeout_s, headers)
    except DeniedError as error:
        raise DeniedError(f"{path} answers {error.status}", field=path, status=error.status) from None
