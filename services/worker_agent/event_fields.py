"""The fields of an engine's events: where they are in either form, and what they mean.

Read from `sglang.srt.disaggregation.kv_events` 0.5.10 to 0.5.23 and `vllm.distributed.kv_events` 0.19 to
0.33. Every reader raises TypeError, ValueError, OverflowError or KeyError for what no engine sends.
"""

from array import array
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvcompass.engine_events import BlockHash

Fields = dict[str, Any]

_ARRAYS: Final[dict[Any, tuple[str, ...]]] = {
    "BlockStored": (
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
        "lora_name",
        "extra_keys",
        "group_idx",
        "kv_cache_spec_kind",
        "kv_cache_spec_sliding_window",
    ),
    "BlockRemoved": ("type", "block_hashes", "medium", "group_idx"),
    "AllBlocksCleared": ("type",),
}
"""In order. SGLang up to 0.5.19 ends with the medium, or with `{"cache_salt": ...}` after it (from 0.5.18
on); vLLM 0.19 with `extra_keys`, 0.20 with the group, 0.22 and 0.23 with all of it."""
_MAPS: Final[dict[Any, frozenset[str]]] = {
    "BlockStored": frozenset(_ARRAYS["BlockStored"])
    | {"cache_salt", "session_id", "locality", "ownership", "lookahead_token_ids"},
    "BlockRemoved": frozenset(_ARRAYS["BlockRemoved"]) | {"locality", "ownership"},
    "AllBlocksCleared": frozenset(("type",)),
}
_HASH_BYTES: Final = 8
_KEYED: Final = "\0"
"""Scope of blocks that something besides their tokens went into: a salt, an image, embeddings."""


def fields_of(item: Any) -> tuple[Fields, bool]:
    """Return an event's fields by name, and whether it has some that are not known here."""
    if type(item) is dict:
        kind = item["type"]
        known = _MAPS.get(kind) if type(kind) is str else None
        return item, known is not None and not item.keys() <= known
    if type(item) is not list or not item or type(item[0]) is not str:
        raise TypeError("an event is a list that begins with its kind, or a map that has one")
    names = _ARRAYS.get(item[0])
    if names is None:
        return {"type": item[0]}, False
    fields = dict(zip(names, item, strict=False))
    metadata = fields.get("lora_name")
    if type(metadata) is dict:
        del fields["lora_name"]
        fields["cache_salt"] = metadata.get("cache_salt")
    return fields, len(item) > len(names)


def is_store(item: Any) -> bool:
    """Whether something malformed is at least a store, which removes nothing."""
    if type(item) is dict:
        return bool(item.get("type") == "BlockStored")
    return type(item) is list and bool(item[:1] == ["BlockStored"])


def hashes_of(values: Any) -> tuple[BlockHash, ...]:
    """Return the names of blocks; one of bytes as the integer of its last eight.

    So does vLLM, unless told not to; and up to 0.23 it shortens the names of blocks on the GPU and not those
    of their copies on the host.
    """
    if type(values) is not list:
        raise TypeError("block hashes are a list")
    kinds = set(map(type, values))
    if kinds <= {int}:
        return tuple(values)
    if not kinds <= {int, bytes} or b"" in values:
        raise TypeError("a block hash is an integer or bytes")
    return tuple([value if type(value) is int else _shortened(value) for value in values])


def parent_of(value: Any) -> BlockHash | None:
    """Return the name of the block before, None before the first."""
    return None if value is None else hashes_of([value])[0]


def tokens_of(values: Any) -> npt.NDArray[np.int32]:
    """Return token ids, int32. Of pairs, those that come first.

    SGLang's cache under EAGLE holds pairs of neighbours: position i is token i and the one after it.
    """
    if type(values) is not list:
        raise TypeError("token ids are a list")
    if values and type(values[0]) in (list, tuple):
        firsts, seconds = zip(*values, strict=True)
        if firsts[1:] != seconds[:-1]:
            raise ValueError("pairs of tokens follow one another")
        values = firsts
    return np.frombuffer(array("i", values), dtype=np.int32)


def block_size_of(value: Any) -> int:
    """Return tokens a block."""
    if type(value) is not int or value < 1:
        raise ValueError("a block size is a positive integer")
    return value


def medium_of(fields: Fields) -> str | None:
    """Return where blocks are: as the engine spells it, and with a remark if it is not the engine's own.

    vLLM: `locality` is LOCAL or REMOTE, `ownership` names a second tier behind the host's memory.
    """
    medium = fields.get("medium")
    if medium is not None and type(medium) is not str:
        raise TypeError("a medium is a name")
    if fields.get("ownership") is not None or fields.get("locality") not in (None, "LOCAL"):
        return f"{medium or 'GPU'} elsewhere"
    return medium


def scope_of(fields: Fields) -> str:
    """Return what separates an event's blocks from equal tokens: the bare salt, or a text no salt is."""
    adapter, salt = fields.get("lora_id"), fields.get("cache_salt")
    if salt is not None and type(salt) is not str:
        raise TypeError("a salt is a text")
    if adapter is None:
        adapter = fields.get("lora_name")
        if adapter is None:
            return salt or ""
    if type(adapter) is not int and type(adapter) is not str:
        raise TypeError("an adapter is a number or a name")
    return f"adapter:{adapter}\0{salt or ''}"


def plain_blocks(keys: Any, blocks: int) -> int:
    """Return how many of a store's blocks, from the first on, are named by their tokens alone.

    vLLM lists for each block what else went into its name: image parts, embeddings, and the salt, which it
    tells of a prompt's first block only. What is below such a block is named by it too.
    """
    if keys is None:
        return blocks
    if type(keys) is not list:
        raise TypeError("extra keys are a list")
    plain = next((place for place, key in enumerate(keys) if key), blocks)
    return plain if len(keys) == blocks or plain == blocks else 0


def keyed_scope(scope: str) -> str:
    """Return the scope of blocks that extra keys went into."""
    return scope or _KEYED


def _shortened(name: bytes) -> int:
    return int.from_bytes(name[-_HASH_BYTES:], "big")
