"""Where a worker holds a prefix: the 2-bit field of the index (paper 3.2)."""

from enum import IntEnum


class Tier(IntEnum):
    """Tier of a held prefix; the value is the index's 2-bit field."""

    NONE = 0
    VRAM = 1
    DRAM = 2
