"""Cache belief: how much of a claimed match a worker really reuses (paper 3.4)."""

import math

import numpy as np
from numpy.typing import NDArray

RECOVERY_STEP_US = 1_000_000
"""Readers see recovery in steps of one second; exponentials compose, so the steps lose nothing."""


class Beliefs:
    """`b_r` of every worker, in [0, 1], 1.0 at first.

    An observation moves it by an EWMA of `min(1, reused / claimed)`. Between observations disbelief fades
    with time constant `recovery_ms`: a worker that is no longer believed wins no claims, so without fading
    nothing could ever restore it (docs/decisions/0303-belief-recovers.md).
    """

    def __init__(self, workers: int, weight: float, recovery_ms: float) -> None:
        self.values: NDArray[np.float64] = np.ones(workers)
        """float64[W]; read by the score, written here only."""
        self._weight = weight
        self._recovery_us = recovery_ms * 1000.0
        self._recovered_at_us = 0

    def apply_plan(self, stay: NDArray[np.bool_], weight: float, recovery_ms: float) -> None:
        """There are as many workers as flags; those that do not stay are believed anew.

        `values` is another array then.
        """
        kept = np.pad(self.values, (0, len(stay) - len(self.values)), constant_values=1.0)
        self.values = np.where(stay, kept, 1.0)
        self._weight = weight
        self._recovery_us = recovery_ms * 1000.0

    def recover(self, now_us: int) -> None:
        """Let disbelief fade up to now; does nothing within a step of the last call."""
        if now_us - self._recovered_at_us >= RECOVERY_STEP_US:
            self._fade(now_us)

    def observe(self, worker: int, claimed: int, reused: int, now_us: int) -> float:
        """Fold in one response whose decision claimed `claimed > 0` tokens; returns the new belief."""
        assert claimed > 0
        self._fade(now_us)
        ratio = min(1.0, max(0, reused) / claimed)
        belief = float(self.values[worker])
        belief = min(1.0, max(0.0, belief + self._weight * (ratio - belief)))
        self.values[worker] = belief
        return belief

    def _fade(self, now_us: int) -> None:
        elapsed_us = now_us - self._recovered_at_us
        if elapsed_us <= 0:
            return
        kept = math.exp(-elapsed_us / self._recovery_us)
        np.subtract(1.0, (1.0 - self.values) * kept, out=self.values)
        self._recovered_at_us = now_us
