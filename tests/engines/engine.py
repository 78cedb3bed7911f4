"""The engine under test: started, killed and started again at the same addresses; a double or a real one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from lab.process import LabProcess, ProcessSpec, wait_ready
from lab.toml import Value, dump_toml
from services.mock_sglang.profiles import ProfileName

MODEL = "engine-under-test"
PAGE_TOKENS = 16
CONTEXT_TOKENS = 4_096
CACHE_TOKENS = 8_192
"""Small, so that few prompts fill it; every prompt of CONTEXT_TOKENS fits beside another."""
RING_BATCHES = 64
"""That a replay reaches back, so that few requests are more than it keeps."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an engine listens, and where its files go."""

    address: str
    """host:port of its HTTP listener."""
    events: str
    """host:port of its events, and of their replay."""
    replay: str
    directory: Path

    @property
    def url(self) -> str:
        return f"http://{self.address}"


class Engine(Protocol):
    """One engine that stays at its place, whatever is started there."""

    @property
    def kind(self) -> Literal["sglang", "vllm"]:
        """As the settings of a worker agent have it."""

    @property
    def page_tokens(self) -> int:
        """Tokens a page; it divides the plan's quantum."""

    @property
    def flush_path(self) -> str:
        """A POST there empties its cache."""

    @property
    def speaks_idle(self) -> bool:
        """Whether it tells of a flush at once, and not with its next step."""

    @property
    def patience_s(self) -> float:
        """Within which anything it leads to must have come true; a start apart."""

    def start(self) -> None:
        """Starts it, with an empty cache, and returns once it serves. It must not run."""

    def kill(self) -> None:
        """Ends it at once, with nothing said; nothing of it is left. Harmless if it does not run."""


MakeEngine = Callable[[Place], Engine]


class Double:
    """The double as one version of SGLang."""

    kind: Literal["sglang"] = "sglang"
    page_tokens = PAGE_TOKENS
    flush_path = "/flush_cache"
    speaks_idle = True
    patience_s = 30.0

    def __init__(self, place: Place, version: ProfileName) -> None:
        settings: dict[str, Value] = {
            "address": place.address,
            "model": MODEL,
            "context_length": CONTEXT_TOKENS,
            "page_size": PAGE_TOKENS,
            "cache_tokens": CACHE_TOKENS,
            "time_scale": 0.05,
            "event_profile": version,
            "event_endpoint": f"tcp://{place.events}",
            "replay_endpoint": f"tcp://{place.replay}",
            "event_ring_batches": RING_BATCHES,
        }
        spec = ProcessSpec(
            f"double-{version}",
            "services.mock_sglang",
            dump_toml(settings),
            place.address,
            ready_path="/v1/models",
        )
        self._process = LabProcess(spec, place.directory)

    def start(self) -> None:
        """As `Engine` has it. Errors: LabError with its last log lines."""
        self._process.start()
        wait_ready([self._process], self.patience_s)

    def kill(self) -> None:
        """As `Engine` has it."""
        self._process.kill()
