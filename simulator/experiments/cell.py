"""One run by its inputs, all of them, so that a result can be kept under their digest."""

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from simulator.impairment import SOUND, Impairment
from simulator.workloads import Arrivals
from simulator.workloads.mixed_texts import text_files
from simulator.workloads.named import TRACE_FILES


@dataclass(frozen=True, slots=True)
class Setting:
    """What runs that are compared have in common."""

    fleet: str = "paper-64"
    """A named fleet, or a plan's file."""
    workload: str = "mixed"
    """A named workload, or a trace's file."""
    requests: int = 20_000
    """Measured ones, at least."""
    warm_up: int = 5_000
    """Before these at least, simulated and not counted."""
    warm_up_s: float = 0.0
    """Virtual time that the warm-up lasts at least, and"""
    window_s: float = 0.0
    """what is measured after it."""
    arrivals: Arrivals = "poisson"
    tenants: int = 50
    users: int = 256
    """Of a closed loop."""
    think_s: float = 5.0
    """Mean pause of a closed loop's users."""
    data: str | None = None
    """Folder of recorded data to make workloads of, where it has them; None: synthetic ones."""
    tokenizer: str | None = None
    """Of the texts of chat exports and plain files."""
    block_size: int = 64
    eviction: str = "lfu"
    linear: bool = False
    """The paper's linear rates in place of measured ones."""
    faithful: bool = False
    """A stream from every unit to each edge, in place of one that edges read as they decide."""
    impairment: Impairment = SOUND
    """What is worse than planned."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One run: a policy under a load with a seed."""

    setting: Setting
    policy: str
    rate_per_s: float
    """Of the whole fleet."""
    load: float | None
    """The same as a multiple of the no-reuse capacity; None where a rate was asked for."""
    seed: int

    @property
    def name(self) -> str:
        """For people: not unique."""
        if self.setting.arrivals == "closed":
            load = f"{self.setting.users}users"
        else:
            load = f"{self.load:g}" if self.load is not None else f"{self.rate_per_s:g}rps"
        workload, fleet = Path(self.setting.workload).stem, Path(self.setting.fleet).stem
        return f"{fleet}-{workload}-{load}-{self.policy}-{self.seed}"

    @property
    def expected_requests(self) -> int:
        """About as many as it will have, for a forecast; the cool-down's left out."""
        setting = self.setting
        rate_per_s = 0.0 if setting.arrivals == "closed" else self.rate_per_s
        warm_up = max(setting.warm_up, int(rate_per_s * setting.warm_up_s))
        return warm_up + max(setting.requests, int(rate_per_s * setting.window_s))

    def inputs(self) -> dict[str, Any]:
        """Everything that the result follows from, beside the code. Reads the files that it names."""
        named = [Path(self.setting.fleet), Path(self.setting.workload), Path(self.setting.tokenizer or "")]
        if self.setting.data is not None and self.setting.workload in TRACE_FILES:
            named.append(Path(self.setting.data) / TRACE_FILES[self.setting.workload])
        files = {str(path): _content(path, path.stat().st_mtime_ns) for path in named if path.is_file()}
        if self.setting.data is not None and self.setting.workload == "mixed":
            texts = [path for path in text_files(Path(self.setting.data)) if path.is_file()]
            files["texts"] = digest({str(path): _content(path, path.stat().st_mtime_ns) for path in texts})
        return asdict(self) | {"files": files}


@cache
def _content(path: Path, _changed_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(inputs: dict[str, Any]) -> str:
    """Name inputs: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:16]
