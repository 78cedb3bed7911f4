"""Incremental SHA-256 over tokens, read at many lengths in one pass."""

import hashlib
from bisect import bisect_right
from typing import Final, Self

import numpy as np
import numpy.typing as npt

_TOKEN: Final = np.dtype("<i4")
_TOKEN_BYTES: Final = 4
_DIGEST_WORDS: Final = 4
_ONE: Final = np.uint64(1)


class PrefixHasher:
    """The running hash of one prefix: feed tokens in any pieces, read the key at any point.

    An agent keeps one at each node of its block tree and copies it where two sequences part, so that a block
    is hashed once however many sequences run through it.
    """

    __slots__ = ("_length", "_sha")

    def __init__(self, namespace: bytes) -> None:
        self._sha = hashlib.sha256(namespace)
        self._length = 0

    @property
    def length(self) -> int:
        """Tokens fed so far."""
        return self._length

    def feed(self, tokens: npt.NDArray[np.int32]) -> None:
        """Append tokens (int32, one dimension) to the prefix. The array is neither kept nor changed."""
        self.feed_bytes(_token_bytes(tokens))

    def feed_bytes(self, tokens: bytes | memoryview) -> None:
        """Append tokens that are bytes already: int32, little endian, one after the other."""
        self._sha.update(tokens)
        self._length += len(tokens) // _TOKEN_BYTES

    def key(self) -> int:
        """Return the 63-bit key of the tokens fed so far. More may be fed afterwards."""
        return int.from_bytes(self._sha.digest()[:8], "big") >> 1

    def copy(self) -> Self:
        """Return an independent hasher of the same prefix (about 0.5 us)."""
        twin = object.__new__(type(self))
        twin._sha = self._sha.copy()
        twin._length = self._length
        return twin


def prefix_keys(
    namespace: bytes, tokens: npt.NDArray[np.int32], lengths: npt.NDArray[np.int32]
) -> npt.NDArray[np.uint64]:
    """Return the keys of the prefixes of `tokens` at `lengths`, in one pass over the tokens.

    An engine reuses at most all tokens but the last, so an edge passes `tokens[:-1]`.

    Args:
        namespace: From `namespace`.
        tokens: int32[t].
        lengths: int32[n], strictly ascending, positive. Those above `t` have no key.

    Returns:
        uint64[k], keys of `lengths[:k]` where k counts the lengths that fit. Each is below 2**63.
    """
    data = _token_bytes(tokens)
    fitting = lengths.tolist()
    del fitting[bisect_right(fitting, len(tokens)) :]
    sha = hashlib.sha256(namespace)
    digests = []
    start = 0
    for length in fitting:
        assert length * _TOKEN_BYTES > start, "lengths must be positive and strictly ascending"
        end = length * _TOKEN_BYTES
        sha.update(data[start:end])
        digests.append(sha.digest())
        start = end
    words = np.frombuffer(b"".join(digests), dtype=">u8")
    keys = words[::_DIGEST_WORDS].astype(np.uint64)
    keys >>= _ONE
    return keys


def _token_bytes(tokens: npt.NDArray[np.int32]) -> memoryview:
    assert tokens.dtype == np.int32 and tokens.ndim == 1, "tokens must be a one-dimensional int32 array"
    return np.ascontiguousarray(tokens, dtype=_TOKEN).view(np.uint8).data
