"""What a maintenance unit does for others at a moment, in one word."""

from enum import StrEnum


class UnitState(StrEnum):
    """In `/health` and `kvcompass status`; each has a line in docs/operations.md."""

    COMPILING = "compiling"
    """Its kernels."""
    RESTORING = "restoring"
    """It reads its own snapshot."""
    REFILLING = "refilling"
    """It began empty, and agents report."""
    CORRECTING = "correcting"
    """It began with its snapshot, serves it, and agents report what differs."""
    SERVING = "serving"
    DRAINING = "draining"
    """It was asked to stop."""
