"""Size, speed and habits of one engine."""

from dataclasses import dataclass, field
from enum import Enum

from kvcompass.engine_model.block_names import BlockNames
from kvcompass.engine_model.cache_events import TierEvents
from kvcompass.engine_model.eviction import EvictionPolicy
from kvcompass.engine_model.timing import EngineTiming


class Scheduling(Enum):
    """How prompts are computed while answers are decoded (docs/decisions/0601)."""

    TURNS = "turns"
    """One prompt after the other, in order of arrival, beside a batch that decodes undisturbed."""
    CHUNKED = "chunked"
    """Chunks of prompts and a token of every answer share each iteration, as in continuous batching."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Size and speed of one engine."""

    page_size: int = 16
    """Tokens a block."""
    cache_tokens: int = 244_140
    """KV capacity: 32 GB at 131,072 bytes a token."""
    max_running: int = 64
    """Sequences that decode at once."""
    max_queued: int = 256
    """Requests that wait for their prefill; more are refused."""
    timing: EngineTiming = field(default_factory=EngineTiming)
    host_cache_tokens: int = 0
    """Tokens that the DRAM tier holds copies of; 0: no such tier."""
    eviction: EvictionPolicy = EvictionPolicy.LRU
    tier_events: TierEvents = TierEvents.ALL
    """How much the engine tells of its tiers."""
    scheduling: Scheduling = Scheduling.TURNS
    chunk_tokens: int = 2_048
    """Prompt tokens an iteration under CHUNKED, of one prompt or several."""
    block_names: BlockNames = BlockNames.HASHED
    token_progress: bool = True
    """Whether every token is told of, or the first and the last of each answer only: an instant to settle for
    every decode step, or for those at which something ends. What happens is the same."""
