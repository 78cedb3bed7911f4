"""What a running request occupies of a cache."""

from dataclasses import dataclass

from kvcompass.engine_model.run import Run


@dataclass(slots=True, eq=False)
class Holding:
    """A locked path of the tree, and room that only this request may fill."""

    last: Run
    """The end of the path; a root while it is empty."""
    blocks: int
    """Of the path."""
    room: int
    """Blocks of VRAM reserved and not yet in the tree."""
    loaded: int
    """Blocks of the path that were loaded back from DRAM for this request."""
    workload: str = ""
