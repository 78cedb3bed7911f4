"""`/v1/loads` of SGLang since 0.5.10."""

from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from kvcompass.roles.queue_estimate import EngineLoad
from services.worker_agent.engine_client import EngineClient, EngineError
from services.worker_agent.load_sources.source import (
    RANKS_MOST,
    Amount,
    Requests,
    SourceKind,
    of_rank,
    total,
)

_PATH: Final = "/v1/loads"
_CORE: Final = f"{_PATH}?include=core"


class _Rank(msgspec.Struct, frozen=True):
    """One entry of `loads`; an engine of several data-parallel ranks has several."""

    num_running_reqs: Requests
    num_waiting_reqs: Requests
    num_used_tokens: Amount = 0
    max_total_num_tokens: Amount = 0
    num_waiting_uncached_tokens: Amount | None = None
    total_prefill_uncached_tokens: Amount | None = None
    total_prefill_busy_us: Amount | None = None
    dp_rank: Annotated[int, msgspec.Meta(ge=0, le=RANKS_MOST)] | None = None
    timestamp: float | None = None
    """When the rank's scheduler wrote it, by its own clock. Later versions answer from what it last wrote,
    without asking it."""


class _Loads(msgspec.Struct, frozen=True):
    loads: Annotated[list[_Rank], msgspec.Meta(max_length=RANKS_MOST)]


_LOADS = msgspec.json.Decoder(_Loads)


class V1Loads:
    """`LoadSource`. Remembers when the schedulers last wrote something new."""

    kind: Final = SourceKind.V1_LOADS
    is_page: Final = False

    def __init__(self, rank: int | None, *, stalled_ms: int, now_us: Callable[[], int]) -> None:
        """`stalled_ms`: a scheduler that writes nothing for so long hangs, though HTTP goes on answering."""
        self._rank = rank
        self._path = _CORE if rank is None else f"{_CORE}&dp_rank={rank}"
        self._stalled_ms = stalled_ms
        self._now_us = now_us
        self._written: list[float | None] = []
        self._written_at_us = 0

    async def read(self, client: EngineClient) -> EngineLoad:
        """The sum over the worker's ranks. Errors: EngineError."""
        answer = await client.get(self._path, _LOADS)
        if not answer.loads and self._path != _CORE:
            # 0.5.10 gives the only rank of an engine no number, and so finds none by it.
            self._path = _CORE
            answer = await client.get(self._path, _LOADS)
        entries = ((each.dp_rank, each) for each in answer.loads)
        ranks = [each for _, each in of_rank(entries, self._rank, _PATH)]
        self._check_that_they_write([rank.timestamp for rank in ranks])
        return EngineLoad(
            running=sum(rank.num_running_reqs for rank in ranks),
            waiting=sum(rank.num_waiting_reqs for rank in ranks),
            used_tokens=sum(rank.num_used_tokens for rank in ranks),
            max_tokens=sum(rank.max_total_num_tokens for rank in ranks),
            waiting_uncached_tokens=total([rank.num_waiting_uncached_tokens for rank in ranks]),
            prefill_uncached_tokens=total([rank.total_prefill_uncached_tokens for rank in ranks]),
            prefill_busy_us=total([rank.total_prefill_busy_us for rank in ranks]),
        )

    def _check_that_they_write(self, written: list[float | None]) -> None:
        """Times are compared for equality alone: they are another clock's."""
        now_us = self._now_us()
        if written != self._written or None in written:
            self._written, self._written_at_us = written, now_us
        silent_ms = (now_us - self._written_at_us) // 1_000
        if silent_ms > self._stalled_ms:
            raise EngineError(
                f"{_PATH} has told the same for {silent_ms} ms: the engine's scheduler hangs", field=_PATH
            )
