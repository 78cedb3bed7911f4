"""A model of one engine: how long it computes, what its prefix cache holds, whose turn it is."""

from kvcompass.engine_model.block_cache import TierEvents
from kvcompass.engine_model.engine import (
    Engine,
    EngineConfig,
    EngineRequest,
    ModelLoad,
    Progress,
    Rejection,
)
from kvcompass.engine_model.eviction import EvictionPolicy
from kvcompass.engine_model.timing import EngineTiming

__all__ = [
    "Engine",
    "EngineConfig",
    "EngineRequest",
    "EngineTiming",
    "EvictionPolicy",
    "ModelLoad",
    "Progress",
    "Rejection",
    "TierEvents",
]
