"""A model of one engine: how long it computes, what its prefix cache holds, whose turn it is."""

from kvcompass.engine_model.block_names import BlockNames
from kvcompass.engine_model.cache_events import TierEvents
from kvcompass.engine_model.config import EngineConfig, Scheduling
from kvcompass.engine_model.engine import Engine
from kvcompass.engine_model.eviction import EvictionPolicy
from kvcompass.engine_model.model_load import ModelLoad, QueueLoad
from kvcompass.engine_model.request import EngineRequest, Progress, Rejection
from kvcompass.engine_model.timing import EngineTiming

__all__ = [
    "BlockNames",
    "Engine",
    "EngineConfig",
    "EngineRequest",
    "EngineTiming",
    "EvictionPolicy",
    "ModelLoad",
    "Progress",
    "QueueLoad",
    "Rejection",
    "Scheduling",
    "TierEvents",
]
