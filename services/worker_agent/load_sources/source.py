"""What all sources of load share: their names, their bounds, and how ranks become one load."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, Literal, Protocol, TypeVar

import msgspec

from kvcompass.roles.queue_estimate import EngineLoad
from services.worker_agent.engine_client import EngineClient, MalformedError

RANKS_MOST: Final = 1_024

# Sums over the ranks fit the protocol's uint32 (requests) and uint64 (the rest), so encoders cannot fail.
Requests = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Amount = Annotated[int, msgspec.Meta(ge=0, le=1 << 48)]

_Rank = TypeVar("_Rank")


class SourceKind(StrEnum):
    """Where the load comes from. A closed set."""

    LOAD_SOCKET = "load_socket"
    """SGLang's `--load-publish-endpoint` (0.5.23): pushed, and `/v1/loads` while it is quiet."""
    V1_LOADS = "v1_loads"
    """SGLang since 0.5.10. Since 0.5.23 with what the queue and the prefills compute."""
    GET_LOAD = "get_load"
    """SGLang up to 0.5.20: requests and tokens, not the size of the memory."""
    SGLANG_METRICS = "sglang_metrics"
    """`/metrics` of SGLang, with `--enable-metrics`: as of the engine's last line of log."""
    VLLM_METRICS = "vllm_metrics"
    """`/metrics` of vLLM, which has nothing else."""

    @property
    def engine(self) -> Literal["sglang", "vllm"]:
        """Whose source it is."""
        return "vllm" if self is SourceKind.VLLM_METRICS else "sglang"


class LoadSource(Protocol):
    """One way to ask one engine."""

    @property
    def kind(self) -> SourceKind:
        """Which it is; of a page of metrics only after the first `read`."""

    @property
    def is_page(self) -> bool:
        """Whether an answer costs the engine a page of text, so that it is to be asked less often."""

    async def read(self, client: EngineClient) -> EngineLoad:
        """The load now. Errors: EngineError; NotThereError when the engine does not have this source."""


def of_rank(
    entries: Iterable[tuple[int | None, _Rank]], rank: int | None, path: str
) -> list[tuple[int | None, _Rank]]:
    """The entries of a worker, each behind its rank: all of them, or those of its data-parallel rank.

    An entry without a rank is that of an engine that has only one. Errors: MalformedError when there is none.
    """
    found = [(number, entry) for number, entry in entries if rank is None or (number or 0) == rank]
    if not found:
        wanted = "no rank" if rank is None else f"no rank {rank}"
        raise MalformedError(f"{path} names {wanted}", field="dp_rank")
    return found


def total(values: Sequence[int | None]) -> int | None:
    """Their sum; None unless all are known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def rank_of(labels: Mapping[str, str], name: str) -> int | None:
    """The rank that a label of a metric names."""
    text = labels.get(name, "")
    return int(text) if text.isdecimal() and len(text) <= 4 else None
