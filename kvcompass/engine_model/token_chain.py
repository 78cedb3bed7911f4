"""Names of KV blocks: each covers a page of tokens and, through a hash chain, everything before it."""

import hashlib

import numpy as np
from numpy.typing import NDArray

_SALT_TAG = b"sglang-cache-salt-v1\0"


class TokenChain:
    """A growing token sequence, cut into pages, with the hash of every full page.

    The hashes are SGLang's: SHA-256 over the previous page's digest and this page's tokens as little-endian
    int32, of which the first 8 bytes are the signed 64-bit name. A scope (a cache salt) is hashed into the
    digest before the first page. About 1 us a page.
    """

    __slots__ = ("_digest", "_page_size", "_tokens", "hashes", "scope")

    def __init__(self, tokens: NDArray[np.int32], page_size: int, scope: str = "") -> None:
        assert page_size > 0
        self._page_size = page_size
        self._tokens = tokens[:0]
        self._digest = hashlib.sha256(_SALT_TAG + scope.encode()).digest() if scope else b""
        self.scope = scope
        """What separates these blocks from equal tokens; empty for none."""
        self.hashes: list[int] = []
        """Names of the full pages, from the first token on."""
        self.extend(tokens)

    def __len__(self) -> int:
        """Tokens so far, those of an unfilled last page included."""
        return len(self._tokens)

    def extend(self, tokens: NDArray[np.int32]) -> None:
        """Append tokens, hashing the pages that they fill."""
        self._tokens = np.concatenate((self._tokens, tokens))
        page_bytes = 4 * self._page_size
        data = memoryview(self._tokens.astype("<i4").tobytes())
        digest = self._digest
        for start in range(len(self.hashes) * page_bytes, len(data) - page_bytes + 1, page_bytes):
            digest = hashlib.sha256(digest + data[start : start + page_bytes]).digest()
            self.hashes.append(int.from_bytes(digest[:8], "big", signed=True))
        self._digest = digest

    def page(self, index: int) -> NDArray[np.int32]:
        """Tokens of a page, a view of int32[page_size]."""
        return self._tokens[index * self._page_size : (index + 1) * self._page_size]
