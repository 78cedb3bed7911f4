"""What an engine says of itself, whatever the engine and its version."""

import re
from dataclasses import dataclass
from typing import Final, Literal

_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)*")
_TELLS_TIERS: Final = {"sglang": (0, 5, 11)}
"""First versions whose events say that a block is copied to the host and leaves the GPU. vLLM always says."""
_TELLS_SALTS: Final = {"sglang": (0, 5, 20), "vllm": (0, 33)}
"""First versions known to say in their events which salt a block is of."""


@dataclass(frozen=True, slots=True)
class EventPublisher:
    """Where an engine publishes its cache events. Rank r of several has the ports + r."""

    endpoint: str
    """Of rank 0, as the engine was told: `tcp://*:5557`."""
    replay_endpoint: str = ""
    """Empty: past batches are not replayed."""
    binds: bool = True
    """False: it connects to the endpoint instead of listening there."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine said, None where it did not."""

    engine: Literal["sglang", "vllm"]
    version: str = ""
    model: str = ""
    """As it is served."""
    page_size: int | None = None
    """Tokens a block."""
    dp_size: int = 1
    """Data-parallel ranks, each with a cache of its own."""
    tp_size: int | None = None
    context_length: int | None = None
    """Tokens."""
    tells_publisher: bool = False
    """Whether it says how it publishes events. vLLM does not."""
    publisher: EventPublisher | None = None
    """None, where it says: it publishes none."""
    host_tier: bool | None = None
    """Whether blocks that leave VRAM may stay in DRAM (SGLang's HiCache)."""
    cache_report: bool | None = None
    """Whether the OpenAI routes tell how many tokens were reused."""
    prefix_cache: bool | None = None
    """Whether prefixes are reused at all."""
    part: str = "both"
    """`prefill` or `decode`: half of a pair."""

    @property
    def tells_tiers(self) -> bool:
        """Whether its events say in which tier a block is. An unknown version is taken not to."""
        first = _TELLS_TIERS.get(self.engine)
        return first is None or version_numbers(self.version) >= first

    @property
    def tells_salts(self) -> bool:
        """Whether its events say which salt a block is of. An unknown version is taken not to."""
        return version_numbers(self.version) >= _TELLS_SALTS[self.engine]


def version_numbers(version: str) -> tuple[int, ...]:
    """`0.5.10.post1` -> (0, 5, 10); nothing where there is no number in front."""
    found = _NUMBERS.match(version)
    return tuple(int(part[:9]) for part in found[0].split(".")) if found else ()
