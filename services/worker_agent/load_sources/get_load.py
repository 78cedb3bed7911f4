"""`/get_load` of SGLang up to 0.5.20."""

from typing import Annotated, Final

import msgspec

from kvcompass.roles.queue_estimate import EngineLoad
from services.worker_agent.engine_client import EngineClient, MalformedError
from services.worker_agent.load_sources.source import (
    RANKS_MOST,
    Amount,
    Requests,
    SourceKind,
    of_rank,
)

_PATH: Final = "/get_load"


class _Rank(msgspec.Struct, frozen=True):
    num_reqs: Requests
    """Running and waiting."""
    num_waiting_reqs: Requests
    num_tokens: Amount = 0
    """In use and waiting."""
    num_pending_tokens: Amount | None = None
    """Waiting. Not told by 0.5.10: what is in use is then what it was when nothing waited."""
    dp_rank: Annotated[int, msgspec.Meta(ge=0, le=RANKS_MOST)] | None = None


_RANKS = msgspec.json.Decoder(Annotated[list[_Rank], msgspec.Meta(max_length=RANKS_MOST)])


class GetLoad:
    """`LoadSource`."""

    kind: Final = SourceKind.GET_LOAD
    is_page: Final = False

    def __init__(self, rank: int | None) -> None:
        self._rank = rank
        self._used_tokens = 0
        """As last told."""

    async def read(self, client: EngineClient) -> EngineLoad:
        """The sum over the worker's ranks. Errors: EngineError."""
        answer = await client.get(_PATH, _RANKS)
        entries = ((each.dp_rank, each) for each in answer)
        ranks = [each for _, each in of_rank(entries, self._rank, _PATH)]
        for rank in ranks:
            if rank.num_waiting_reqs > rank.num_reqs:
                raise MalformedError(f"{_PATH} tells more waiting than all", field="num_waiting_reqs")
            if (rank.num_pending_tokens or 0) > rank.num_tokens:
                raise MalformedError(f"{_PATH} tells more pending than all", field="num_pending_tokens")
        if all(map(_tells_use, ranks)):
            self._used_tokens = sum(map(_used, ranks))
        return EngineLoad(
            running=sum(rank.num_reqs - rank.num_waiting_reqs for rank in ranks),
            waiting=sum(rank.num_waiting_reqs for rank in ranks),
            used_tokens=self._used_tokens,
            max_tokens=0,
        )


def _tells_use(rank: _Rank) -> bool:
    return rank.num_pending_tokens is not None or not rank.num_waiting_reqs


def _used(rank: _Rank) -> int:
    return rank.num_tokens - (rank.num_pending_tokens or 0)
