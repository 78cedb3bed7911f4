"""HTTP to one engine: bounded answers, a timeout on each. Never `/health`: SGLang generates there."""

from collections.abc import Mapping
from typing import Final, TypeVar

import aiohttp
import msgspec

from kvcompass.errors import KVCompassError

_Answer = TypeVar("_Answer")

JSON_BYTES: Final = 1 << 20
"""Of one answer in JSON; a thousand ranks take half of it."""
_NOT_THERE: Final = frozenset({301, 302, 303, 307, 308, 404, 405, 410, 501})
_NO_KEY: Final = frozenset({401, 403})
_DENIED: Final = frozenset({400, 413, 422})
_REASON_BYTES: Final = 400
"""Of what an engine says when it denies a request."""


class EngineError(KVCompassError):
    """An engine does not answer, or answers what cannot be used."""


class NotThereError(EngineError):
    """The engine has no such route, or has it elsewhere: redirects are not followed."""


class DeniedError(EngineError):
    """The engine does not take what was sent: it would not take it another time either.

    The message ends with what the engine says to it, which may repeat what was sent; `status` is of HTTP.
    """

    def __init__(self, message: str, *, field: str, status: int) -> None:
        super().__init__(message, field=field)
        self.status = status


class MalformedError(EngineError):
    """An answer that cannot be used. `field` is the place in it, or the route where it has none."""


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

    async def get(self, path: str, decoder: msgspec.json.Decoder[_Answer]) -> _Answer:
        """Ask for JSON. Errors: EngineError; MalformedError names what in the answer cannot be used."""
        return decoded(decoder, await self.get_bytes(path, JSON_BYTES), path.partition("?")[0])

    async def get_bytes(self, path: str, most: int) -> bytes:
        """Ask for at most so many bytes. Errors: EngineError."""
        return await self._ask("GET", path, None, most, self._timeout)

    async def post(
        self, path: str, body: bytes, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Send JSON and return the answer, within a time of its own. Errors: EngineError.

        Cancelling the call closes the connection.
        """
        within = aiohttp.ClientTimeout(total=timeout_s)
        sent = {**(headers or {}), "content-type": "application/json"}
        return await self._ask("POST", path, body, JSON_BYTES, within, sent)

    async def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None,
        most: int,
        within: aiohttp.ClientTimeout,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        assert self._session is not None, "used outside of its context"
        route = path.partition("?")[0]
        try:
            async with self._session.request(
                method,
                f"{self._base}{path}",
                data=body,
                headers=headers,
                timeout=within,
                allow_redirects=False,
            ) as response:
                if response.status in _DENIED:
                    reason = (await response.content.read(_REASON_BYTES)).decode(errors="replace")
                    message = f"{route} answers {response.status}: {reason}"
                    raise DeniedError(message, field=route, status=response.status)
                if response.status != 200:
                    raise _refused(route, response.status)
                return await _body(response, route, most)
        except TimeoutError as error:
            raise EngineError(f"{route} does not answer in time", field=route) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(f"{route}: {type(error).__name__}", field=route) from error


def decoded(
    decoder: msgspec.json.Decoder[_Answer] | msgspec.msgpack.Decoder[_Answer], body: bytes, path: str
) -> _Answer:
    """Decode what an engine said at `path`. Errors: MalformedError."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        reason, _, where = str(error).partition(" - at `$")
        field = where.strip("`.") or path
        raise MalformedError(f"{path} answers what cannot be used: {field}: {reason}", field=field) from error
    except RecursionError as error:
        raise MalformedError(f"{path} answers what is nested too deeply", field=path) from error


def _refused(path: str, status: int) -> EngineError:
    if status in _NOT_THERE:
        return NotThereError(f"{path} answers {status}", field=path)
    if status in _NO_KEY:
        return EngineError(f"{path} answers {status}: set engine.api_key to the engine's key", field=path)
    return EngineError(f"{path} answers {status}", field=path)


async def _body(response: aiohttp.ClientResponse, path: str, most: int) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > most:
            raise MalformedError(f"{path} answers more than {most} bytes", field=path)
    return bytes(body)
