"""Asks an engine over HTTP how busy it is. Never `/health`: that makes an engine generate, for a second."""

from typing import Annotated, Any, Final

import aiohttp
import msgspec

from kvcompass.errors import KVCompassError
from kvcompass.roles.queue_estimate import EngineLoad


class EngineError(KVCompassError):
    """An engine does not answer, or answers what cannot be used."""


_ANSWER_BYTES: Final = 1 << 20
"""Of one answer; a thousand ranks take half of it."""

# Sums over the ranks fit the protocol's uint32 (requests) and uint64 (the rest), so encoders cannot fail.
_Requests = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
_Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]


class _Rank(msgspec.Struct, frozen=True):
    """One entry of `loads`; an engine of several data-parallel ranks has several."""

    num_running_reqs: _Requests
    num_waiting_reqs: _Requests
    num_used_tokens: _Amount = 0
    max_total_num_tokens: _Amount = 0
    num_waiting_uncached_tokens: _Amount | None = None
    total_prefill_uncached_tokens: _Amount | None = None
    total_prefill_busy_us: _Amount | None = None


class _Loads(msgspec.Struct, frozen=True):
    loads: Annotated[list[_Rank], msgspec.Meta(max_length=1_024)]


class _ServerInfo(msgspec.Struct, frozen=True):
    page_size: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] | None = None


_LOADS = msgspec.json.Decoder(_Loads)
_INFO = msgspec.json.Decoder(_ServerInfo)


class EngineClient:
    """HTTP to one engine. Owns its session: use it as an async context manager."""

    def __init__(self, base_url: str, *, api_key: str, timeout_ms: int) -> None:
        self._base = base_url.rstrip("/")
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_ms / 1_000)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "EngineClient":
        self._session = aiohttp.ClientSession(timeout=self._timeout, headers=self._headers)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def load(self) -> EngineLoad:
        """Return the sum over the engine's ranks. Errors: EngineError."""
        answer = await self._get("/v1/loads", _LOADS)
        ranks: list[_Rank] = answer.loads
        if not ranks:
            raise EngineError("/v1/loads names no rank", field="loads")
        return EngineLoad(
            running=sum(rank.num_running_reqs for rank in ranks),
            waiting=sum(rank.num_waiting_reqs for rank in ranks),
            used_tokens=sum(rank.num_used_tokens for rank in ranks),
            max_tokens=sum(rank.max_total_num_tokens for rank in ranks),
            waiting_uncached_tokens=_sum([rank.num_waiting_uncached_tokens for rank in ranks]),
            prefill_uncached_tokens=_sum([rank.total_prefill_uncached_tokens for rank in ranks]),
            prefill_busy_us=_sum([rank.total_prefill_busy_us for rank in ranks]),
        )

    async def page_size(self) -> int | None:
        """Return the engine's block size in tokens; None when it does not say. Errors: EngineError."""
        answer = await self._get("/server_info", _INFO)
        size: int | None = answer.page_size
        return size

    async def _get(self, path: str, decoder: msgspec.json.Decoder[Any]) -> Any:
        assert self._session is not None, "used outside of its context"
        try:
            async with self._session.get(f"{self._base}{path}") as response:
                if response.status != 200:
                    raise EngineError(f"{path} answers {response.status}", field=path)
                return decoder.decode(await _body(response, path))
        except TimeoutError as error:
            raise EngineError(f"{path} does not answer in time", field=path) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(f"{path}: {type(error).__name__}", field=path) from error
        except msgspec.DecodeError as error:
            raise EngineError(f"{path} answers what cannot be used: {error}", field=path) from error
        except RecursionError as error:
            raise EngineError(f"{path} answers what is nested too deeply", field=path) from error


async def _body(response: aiohttp.ClientResponse, path: str) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > _ANSWER_BYTES:
            raise EngineError(f"{path} answers more than {_ANSWER_BYTES} bytes", field=path)
    return bytes(body)


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
