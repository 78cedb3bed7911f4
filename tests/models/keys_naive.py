"""Keys the slow way: every prefix packed and hashed from its start."""

import hashlib
import struct
from collections.abc import Sequence
from fractions import Fraction


def naive_namespace(fields: Sequence[str]) -> bytes:
    packed = b""
    for field in fields:
        packed += struct.pack("<I", len(field.encode())) + field.encode()
    return packed


def naive_key(namespace: bytes, tokens: Sequence[int]) -> int:
    digest = hashlib.sha256(namespace + struct.pack(f"<{len(tokens)}i", *tokens)).hexdigest()
    return int(digest, 16) >> (256 - 63)


def naive_shard(key: int, shards: int) -> int:
    """Which of `shards` equal parts of the upper 32 bits' range the key falls into."""
    part = Fraction(key >> 31, 2**32)
    return next(shard for shard in range(shards) if part < Fraction(shard + 1, shards))
