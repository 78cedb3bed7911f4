"""A token sequence as the cache sees it: bytes, cut into pages."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_model.block_names import hashed_names, page_digests, seed_digest

_TOKEN: Final = np.dtype("<i4")


class TokenChain:
    """A growing token sequence of one scope, of which the first pages may be forgotten."""

    __slots__ = ("data", "first", "page_bytes", "scope", "seed")

    def __init__(self, tokens: NDArray[np.int32], page_size: int, scope: str = "") -> None:
        """Start with `tokens` (int32[n], copied) and pages of `page_size` tokens."""
        assert page_size > 0
        self.page_bytes = 4 * page_size
        self.data = _bytes_of(tokens)
        """Tokens from page `first` on, int32 little endian."""
        self.first = 0
        self.scope = scope
        """What separates its blocks from those of equal tokens; empty for none."""
        self.seed = seed_digest(scope)
        """What is hashed before the first page."""

    def __len__(self) -> int:
        """Tokens so far, those of an unfilled last page included."""
        return (self.first * self.page_bytes + len(self.data)) // 4

    @property
    def pages(self) -> int:
        """Full pages, forgotten ones included."""
        return self.first + len(self.data) // self.page_bytes

    @property
    def hashes(self) -> tuple[int, ...]:
        """SGLang's names of the full pages, none of which has been forgotten. Computed anew at each call."""
        assert not self.first
        return hashed_names(page_digests(self.seed, self.data, self.page_bytes))

    def forget(self, pages: int) -> None:
        """Let go of the tokens of the first pages: a cache has them."""
        self.data = self.data[(pages - self.first) * self.page_bytes :]
        self.first = pages

    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Append tokens."""
        self.data += _bytes_of(tokens)


def _bytes_of(tokens: NDArray[np.int32]) -> bytes:
    return tokens.tobytes() if tokens.dtype is _TOKEN else tokens.astype(_TOKEN).tobytes()
