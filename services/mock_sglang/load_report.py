"""The load of an engine, as /v1/loads, /get_load and /metrics need it, whatever the version."""

from collections.abc import Sequence
from dataclasses import dataclass

from kvcompass.engine_model import ModelLoad


@dataclass(frozen=True, slots=True)
class RankLoad:
    """The load of one dp rank. Times are wall time."""

    dp_rank: int
    model: ModelLoad
    time_scale: float
    max_running_requests: int
    finished_requests: int
    """Answered to their end since the start."""

    @property
    def usage(self) -> float:
        """Share of the KV cache in use."""
        return self.model.used_tokens / self.model.capacity_tokens

    @property
    def utilization(self) -> float:
        """Share of the scarcer of memory and sequences."""
        return max(self.usage, self.model.running / self.max_running_requests)

    @property
    def throughput(self) -> float:
        """Tokens a second that the present batch decodes."""
        if not self.model.step_us:
            return 0.0
        return round(self.model.decoding * 1e6 / (self.model.step_us * self.time_scale), 2)

    @property
    def hit_rate(self) -> float:
        """Share of all prompt tokens that came from the cache."""
        load = self.model
        return round(load.cached_tokens / load.prompt_tokens, 4) if load.prompt_tokens else 0.0

    @property
    def requests(self) -> int:
        """Running and waiting."""
        return self.model.running + self.model.waiting

    @property
    def prefill_busy_us(self) -> int:
        """Time that the prefills took which have ended."""
        return round(self.model.prefilled_us * self.time_scale)

    @property
    def queues(self) -> dict[str, int]:
        """The queue section, with its queues that this engine does not have."""
        return {"waiting": self.model.waiting, "grammar": 0, "paused": 0, "retracted": 0}


@dataclass(frozen=True, slots=True)
class LoadReport:
    """The load of dp ranks at one instant."""

    version: str
    timestamp_s: float
    """Seconds since 1970."""
    dp_size: int
    """Ranks that the engine has."""
    ranks: Sequence[RankLoad]
    """All of them, or the one that was asked for."""
