"""Users of every region, who ask at a steady pace whatever happens, as clients behind a balancer do."""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

import httpx

_TIMEOUT_S: Final = 60.0
_CONNECT_S: Final = 2.0
_FAMILIES: Final = 12
_PREFIX_TOKENS: Final = 2_048
"""Shared by a family's prompts: above any first length of the lab, and so other regions' caches count."""
_OWN_TOKENS: Final = 512
"""More than rungs are apart at that length: every prompt that is computed is a key more."""
_ANSWER_TOKENS: Final = 16
_WHOLE_EVERY: Final = 4
"""One answer in so many is not streamed."""


class Fate(StrEnum):
    """What became of a request."""

    ANSWERED = "answered"
    CUT = "cut"
    """Its answer had begun."""
    AT_A_KILLED_EDGE = "at_a_killed_edge"
    """The edge that was answering it was killed."""
    FAILED = "failed"
    """Anything else: nothing of it is allowed."""


@dataclass(slots=True)
class Asked:
    """One request, filled in as it goes."""

    region: str
    sent_at: float
    """`time.monotonic()`."""
    streamed: bool
    edge: str = ""
    """Where it was sent last."""
    passed_over: int = 0
    """Endpoints before that one which did not take it."""
    begun_at: float | None = None
    ended_at: float | None = None
    failure: str = ""

    def fate(self, kills: Mapping[str, Sequence[float]]) -> Fate:
        """`kills`: when each edge was killed. For a request that has ended."""
        assert self.ended_at is not None
        if not self.failure:
            return Fate.ANSWERED
        if any(self.sent_at <= killed <= self.ended_at for killed in kills.get(self.edge, ())):
            return Fate.AT_A_KILLED_EDGE
        return Fate.CUT if self.begun_at is not None else Fate.FAILED


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An edge, as a client knows it."""

    edge: str
    url: str
    """Base URL for an OpenAI client."""


class Users:
    """Asks from a thread of its own. Use as a context manager."""

    def __init__(
        self,
        endpoints: Mapping[str, Sequence[Endpoint]],
        model: str,
        *,
        requests_per_s: float,
        says_ready: Callable[[str], bool],
        random_seed: int = 1,
    ) -> None:
        """`endpoints`: by region, in the order in which its users try them. `says_ready`: of an edge."""
        self._endpoints = endpoints
        self._model = model
        self._pause_s = len(endpoints) / requests_per_s
        self._says_ready = says_ready
        self._rng = random.Random(random_seed)
        self._families = [_tokens(self._rng, _PREFIX_TOKENS) for _ in range(_FAMILIES)]
        self._stop = threading.Event()
        self._asked: list[Asked] = []
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True, name="users")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=5.0)

    def overlapping(self, began: float, ended: float) -> list[Asked]:
        """Requests that were under way at some time between the two.

        Errors: whatever ended the users' thread; then nobody asks any more.
        """
        if self._failure is not None:
            raise self._failure
        return [
            asked
            for asked in tuple(self._asked)
            if asked.sent_at <= ended and (asked.ended_at is None or asked.ended_at >= began)
        ]

    def _run(self) -> None:
        try:
            asyncio.run(self._ask_on())
        except BaseException as error:
            self._failure = error

    async def _ask_on(self) -> None:
        limits = httpx.Limits(max_keepalive_connections=0)  # an edge may be another process by then
        timeout = httpx.Timeout(_TIMEOUT_S, connect=_CONNECT_S)
        under_way: set[asyncio.Task[None]] = set()
        async with httpx.AsyncClient(trust_env=False, limits=limits, timeout=timeout) as client:
            for number, region in enumerate(itertools.cycle(self._endpoints)):
                if self._stop.is_set():
                    break
                asked = Asked(region, time.monotonic(), streamed=number % _WHOLE_EVERY != 0)
                self._asked.append(asked)
                task = asyncio.create_task(self._ask(client, asked, self._prompt()))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
                await asyncio.sleep(self._pause_s / len(self._endpoints))
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    def _prompt(self) -> list[int]:
        return self._rng.choice(self._families) + _tokens(self._rng, _OWN_TOKENS)

    async def _ask(self, client: httpx.AsyncClient, asked: Asked, prompt: list[int]) -> None:
        body = {
            "model": self._model,
            "prompt": prompt,
            "max_tokens": _ANSWER_TOKENS,
            "stream": asked.streamed,
        }
        try:
            for endpoint in in_order(self._endpoints[asked.region], self._says_ready):
                asked.edge = endpoint.edge
                asked.failure = await _send(client, endpoint, body, asked)
                if not _is_refusal(asked.failure):
                    break
                asked.passed_over += 1
        finally:
            asked.ended_at = time.monotonic()


def in_order(endpoints: Iterable[Endpoint], says_ready: Callable[[str], bool]) -> list[Endpoint]:
    """Those that are ready first, each group in the order of preference."""
    return sorted(endpoints, key=lambda endpoint: not says_ready(endpoint.edge))


_NOT_TAKEN: Final = "not taken: "


def _is_refusal(failure: str) -> bool:
    """Whether the endpoint never took the request, so that the next one may be asked."""
    return failure.startswith(_NOT_TAKEN)


async def _send(client: httpx.AsyncClient, endpoint: Endpoint, body: dict[str, Any], asked: Asked) -> str:
    """What went wrong; nothing when the whole answer came."""
    whole = b""
    try:
        async with client.stream("POST", f"{endpoint.url}/completions", json=body) as answer:
            async for piece in answer.aiter_bytes():
                if answer.status_code == 200 and asked.begun_at is None:
                    asked.begun_at = time.monotonic()
                whole += piece
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        return f"{_NOT_TAKEN}{type(error).__name__}"
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    if answer.status_code == 503 and b'"not_ready"' in whole:
        return f"{_NOT_TAKEN}503 not_ready"
    if answer.status_code != 200:
        return f"{answer.status_code} {whole[:200].decode('utf-8', 'replace')}"
    if asked.streamed and not whole.rstrip().endswith(b"data: [DONE]"):
        return f"the stream ended early: {whole[-200:].decode('utf-8', 'replace')}"
    return ""


def _tokens(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(300, 4_000) for _ in range(count)]
