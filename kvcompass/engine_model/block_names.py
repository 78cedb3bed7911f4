"""Names of KV blocks: each covers a page of tokens and everything before it."""

import hashlib
from enum import Enum

_SALT_TAG = b"sglang-cache-salt-v1\0"
_NAME_BYTES = 8


class BlockNames(Enum):
    """What an engine calls its blocks. Whoever listens must not care: names are opaque."""

    HASHED = "hashed"
    """As SGLang does: equal tokens have equal names. About 0.7 us a block when it is first stored."""
    NUMBERED = "numbered"
    """Counted in the order they are stored, which costs nothing. A block that comes back has a new name."""


def seed_digest(scope: str) -> bytes:
    """What is hashed before the first page: nothing, or the digest of a scope (a cache salt)."""
    return hashlib.sha256(_SALT_TAG + scope.encode()).digest() if scope else b""


def page_digests(before: bytes, data: bytes, page_bytes: int) -> list[bytes]:
    """Digests of the pages of `data` that follow the page of digest `before`, whole pages only.

    SGLang's chain: SHA-256 over the previous page's digest and this page's tokens as little-endian int32.
    """
    digests = []
    for start in range(0, len(data) - page_bytes + 1, page_bytes):
        before = hashlib.sha256(before + data[start : start + page_bytes]).digest()
        digests.append(before)
    return digests


def hashed_names(digests: list[bytes]) -> tuple[int, ...]:
    """SGLang's names: the first 8 bytes of a digest, signed."""
    return tuple([int.from_bytes(digest[:_NAME_BYTES], "big", signed=True) for digest in digests])
