"""Events as vLLM encodes them: in array form up to 0.23, as maps from 0.24 on.

Fields, order and defaults are those of `vllm.distributed.kv_events` 0.23.0 and 0.33.0; bytes of both are in
`tests/fixtures/golden/vllm_forms.json`.
"""

from typing import Any

import msgspec

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineEvent,
)

VllmEvent = EngineEvent | BlocksCopied

STORED = (
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
)
REQUIRED = 7
"""Of STORED; the rest is left out at the end of an array, and anywhere in a map, where it is None."""


def encode(events: list[VllmEvent], *, as_maps: bool, names_as_bytes: bool, group: int | None) -> bytes:
    """One payload. A salt is told of first blocks alone, as `extra_keys`."""
    raw = [_fields(event, names_as_bytes, group) for event in events]
    return msgspec.msgpack.encode([1.5, raw if as_maps else [_array(fields) for fields in raw], 0])


def _fields(event: VllmEvent, names_as_bytes: bool, group: int | None) -> dict[str, Any]:
    def names(hashes: tuple[BlockHash, ...]) -> list[int | bytes]:
        return [_as_bytes(each) if names_as_bytes else each for each in hashes]

    match event:
        case BlockStored():
            keys = [(event.scope,), *[None] * (len(event.hashes) - 1)] if event.scope else None
            kind = None if group is None else "full_attention"
            parent = None if event.parent is None else names((event.parent,))[0]
            values = (names(event.hashes), parent, event.tokens.tolist(), event.block_size, None)
            return _stored(*values, event.medium, None, keys, group, kind, None)
        case BlocksCopied():
            return _stored(
                names(event.hashes), None, [], 0, None, event.medium, None, None, group, None, None
            )
        case BlockRemoved():
            fields = {"type": "BlockRemoved", "block_hashes": names(event.hashes), "medium": event.medium}
            return fields if group is None else fields | {"group_idx": group}
        case AllBlocksCleared():
            return {"type": "AllBlocksCleared"}


def _stored(*values: Any) -> dict[str, Any]:
    fields = dict(zip(STORED, values, strict=True))
    optional = {name: value for name, value in fields.items() if value is not None}
    return {"type": "BlockStored"} | {name: fields[name] for name in STORED[:REQUIRED]} | optional


def _array(fields: dict[str, Any]) -> list[Any]:
    if fields["type"] != "BlockStored":
        return list(fields.values())
    last = max(REQUIRED, *(place for place, name in enumerate(STORED, 1) if name in fields))
    return ["BlockStored", *(fields.get(name) for name in STORED[:last])]


def _as_bytes(name: BlockHash) -> bytes:
    """32 bytes of which the engine's integer is the end."""
    assert isinstance(name, int)
    return b"\x7f" * 24 + name.to_bytes(8, "big")
