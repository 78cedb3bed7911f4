"""Whether an engine is of the kind that an agent's settings say: what its events mean hangs on it."""

from typing import Literal

from kvcompass.roles.engine_fit import EngineRefusal
from services.worker_agent.load_sources.source import SourceKind


def wrong_kind(kind: Literal["sglang", "vllm"], source: SourceKind | None) -> EngineRefusal | None:
    """Why an engine whose load comes from a source is not of this kind; None when it is, or none came.

    A vLLM tells a store again when nothing changed, and SGLang's stores are counted: read as the other's,
    blocks that are gone stay claimed.
    """
    if source is None or source.engine == kind:
        return None
    return EngineRefusal(
        "engine.kind",
        f'the settings say "{kind}", and its load comes from {source.value}: set engine.kind = '
        f'"{source.engine}" in the agent\'s settings',
    )
