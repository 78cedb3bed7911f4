"""What may be chosen about a named fleet."""

from dataclasses import dataclass
from typing import Literal

from kvcompass.engine_model import EvictionPolicy, Scheduling
from simulator.fleets.latencies import WanReading

TimingMode = Literal["measured", "linear"]
"""`measured`: prefill quadratic, decode with attention over contexts. `linear`: the paper's rates alone,
every prefill token beta ms, every decode step the same, every reloaded token gamma ms."""


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Defaults are the paper's setting where it tells one, else the product's."""

    block_size: int = 64
    """Tokens a KV block. Engines default to 16; 64 costs a simulation a quarter of the blocks."""
    timing: TimingMode = "measured"
    scheduling: Scheduling | None = None
    """None: chunked prefill in the decode batch under measured times, as engines do; one prefill after the
    other beside it under linear ones, as the paper reckons."""
    eviction: EvictionPolicy = EvictionPolicy.LFU
    """The paper's for Mixed (5.1); it takes LRU for WildChat and LMSYS."""
    wan: WanReading = "one_way"
    length_policy: Literal["ladder", "paper"] = "ladder"
    queue_scale_ms: float = 200.0
    """tau, which the paper does not tell; the product's default."""
    wan_charge: Literal["round_trip", "one_way"] = "round_trip"
    shards: int = 4
    """Maintenance units; at most one a region."""

    @property
    def scheduled(self) -> Scheduling:
        """How engines share their time between prompts and answers."""
        if self.scheduling is not None:
            return self.scheduling
        return Scheduling.CHUNKED if self.timing == "measured" else Scheduling.TURNS
