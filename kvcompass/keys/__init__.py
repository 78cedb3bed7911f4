"""Tokens -> 63-bit prefix keys: SHA-256 of a namespace and the first c tokens (paper 3.2)."""

from kvcompass.keys.namespace import KEY_VERSION, namespace
from kvcompass.keys.prefix import PrefixHasher, prefix_keys
from kvcompass.keys.shards import shard_of, shards_of

__all__ = ["KEY_VERSION", "PrefixHasher", "namespace", "prefix_keys", "shard_of", "shards_of"]
