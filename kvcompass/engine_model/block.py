"""A block of KV cache, wherever it is held."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class CacheBlock:
    """A page of tokens and, through its parents, everything before it."""

    name: int
    parent: "CacheBlock | None"
    depth: int
    """Blocks before it."""
    serial: int
    """Counts blocks in order of their creation."""
    last_use: int
    """The cache's clock at the last use: orders uses within one instant too."""
    used_us: int
    """Model time of the last use."""
    workload: str
    """Category of the request that used it last."""
    hits: int = 0
    """Requests that found it here."""
    locks: int = 0
    """Running requests that hold it in VRAM."""
    in_vram: bool = False
    in_dram: bool = False
    vram_children: int = 0
    dram_children: int = 0
