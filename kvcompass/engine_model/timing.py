"""How long an engine takes. Constants are an A100 serving an 8B model (docs/decisions/0601)."""

from dataclasses import dataclass
from typing import Final, Self

PS_PER_US: Final = 1_000_000
"""Work of an iteration is counted in picoseconds, so that times of many steps add up exactly."""
_PS_PER_MS: Final = 1e9


def picoseconds(ms: float) -> int:
    """The same time as an integer."""
    return round(ms * _PS_PER_MS)


@dataclass(frozen=True, slots=True)
class EngineTiming:
    """Prefill is quadratic in the position, decode linear in the contexts it attends to."""

    prefill_ms_per_token: float = 0.067
    """Linear part: matrix products, the same for every token."""
    prefill_ms_per_token_squared: float = 1.38e-6
    """Quadratic part: attention over everything before."""
    decode_ms: float = 11.0
    """One step of a batch of 1 to 64 sequences, without attention to their contexts: the weights are read."""
    decode_ms_per_context_token: float = 6.6e-5
    """Added to a step for every token of context in the batch."""
    reload_ms_per_token: float = 0.00524
    """From DRAM to VRAM: 131,072 bytes a token at 25 GB/s (paper's gamma)."""

    @classmethod
    def linear(cls, prefill_ms_per_token: float, reload_ms_per_token: float = 0.00524) -> Self:
        """The paper's rates: beta a token computed and gamma a token loaded back, wherever in the prompt."""
        return cls(
            prefill_ms_per_token, prefill_ms_per_token_squared=0.0, reload_ms_per_token=reload_ms_per_token
        )

    def prefill_us(self, cached_tokens: int, new_tokens: int) -> int:
        """Time to compute `new_tokens` after `cached_tokens` that are reused.

        Computing a prompt in two parts costs what computing it at once costs: t(c + n) - t(c).
        """
        end = cached_tokens + new_tokens
        squares = end * end - cached_tokens * cached_tokens
        return round(
            1_000 * (self.prefill_ms_per_token * new_tokens + self.prefill_ms_per_token_squared * squares)
        )

    def reload_us(self, tokens: int) -> int:
        """Time to load the KV of so many tokens back from DRAM."""
        return round(1_000 * self.reload_ms_per_token * tokens)
