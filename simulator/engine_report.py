"""What an engine tells of its load, as its agent reads it."""

from kvcompass.engine_model import QueueLoad
from kvcompass.roles.queue_estimate import EngineLoad


def engine_load(load: QueueLoad) -> EngineLoad:
    """`/v1/loads` as SGLang 0.5.23 answers it, which counts the uncached tokens of its queue and prefills."""
    return EngineLoad(
        load.running,
        load.waiting,
        load.used_tokens,
        load.capacity_tokens,
        load.waiting_uncached_tokens,
        load.prefilled_tokens,
        load.prefilled_us,
    )
