"""A token sequence as the cache sees it: bytes, cut into pages."""

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model.block_names import hashed_names, page_digests, seed_digest


class TokenChain:
    """A growing token sequence of one scope."""

    __slots__ = ("data", "page_bytes", "scope", "seed")

    def __init__(self, tokens: NDArray[np.int32], page_size: int, scope: str = "") -> None:
        """Start with `tokens` (int32[n], copied) and pages of `page_size` tokens."""
        assert page_size > 0
        self.page_bytes = 4 * page_size
        self.data = tokens.astype("<i4", copy=False).tobytes()
        """int32 little endian."""
        self.scope = scope
        """What separates its blocks from those of equal tokens; empty for none."""
        self.seed = seed_digest(scope)
        """What is hashed before the first page."""

    def __len__(self) -> int:
        """Tokens so far, those of an unfilled last page included."""
        return len(self.data) // 4

    @property
    def pages(self) -> int:
        """Full pages."""
        return len(self.data) // self.page_bytes

    @property
    def hashes(self) -> list[int]:
        """SGLang's names of the full pages, from the first token on. Computed anew at each call."""
        return hashed_names(page_digests(self.seed, self.data, self.page_bytes))

    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Append tokens."""
        self.data += tokens.astype("<i4", copy=False).tobytes()
