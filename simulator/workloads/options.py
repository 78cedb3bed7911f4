"""What may be chosen about a workload and its arrivals."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simulator.errors import SimulationError

Arrivals = Literal["poisson", "bursty", "recorded", "closed"]
"""How requests follow one another. `recorded` is for traces, at their own instants scaled to a rate."""


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """All that is not the workload itself."""

    tenants: int = 50
    """Each with a system prompt of its own before every prompt (paper 5.3, "at scale"); 0: none. Traces,
    whose prompts are whole, have none."""
    users: int = 256
    """Of a closed loop."""
    think_s: float = 5.0
    """Mean time for which a user of a closed loop thinks before opening another conversation."""
    settled: bool = True
    """In an open loop, begin with as many conversations under way as there are ever after."""
    data: Path | None = None
    """The folder that KVCOMPASS_DATA names: workloads are made from its files where it has them. None:
    synthetic."""
    tokenizer: Path | None = None
    """A `tokenizer.json` for the texts of exports and plain files. None: pieces of about a token's size."""


def data_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder that `KVCOMPASS_DATA` names, for `WorkloadOptions.data`; None where it is not set.

    Raises:
        SimulationError: It names no folder.
    """
    named = environ.get("KVCOMPASS_DATA")
    if not named:
        return None
    folder = Path(named)
    if not folder.is_dir():
        raise SimulationError(
            f"{folder} is not a folder; KVCOMPASS_DATA must name one", field="KVCOMPASS_DATA"
        )
    return folder
