"""What may be chosen about a named fleet."""

from dataclasses import dataclass
from typing import Literal

from kvcompass.engine_model import EvictionPolicy
from simulator.fleets.engines import TimingMode
from simulator.fleets.latencies import WanReading


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Defaults are the paper's setting where it tells one, else the product's."""

    block_size: int = 64
    """Tokens a KV block. Engines default to 16; 64 costs a simulation a quarter of the blocks."""
    timing: TimingMode = "measured"
    eviction: EvictionPolicy = EvictionPolicy.LFU
    """The paper's for Mixed (5.1); it takes LRU for WildChat and LMSYS."""
    wan: WanReading = "one_way"
    length_policy: Literal["ladder", "paper"] = "ladder"
    queue_scale_ms: float = 200.0
    """tau, which the paper does not tell; the product's default."""
    wan_charge: Literal["round_trip", "one_way"] = "round_trip"
    shards: int = 4
    """Maintenance units; at most one a region."""
