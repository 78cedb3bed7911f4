"""Cache events in map form, byte for byte as SGLang from 0.5.20 on sends them, neighbours joined."""

from collections.abc import Sequence

import msgspec

from kvcompass import engine_events as core

_ADAPTER = "adapter:"


class BlockStored(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """`{"type": "BlockStored", ...}`; what is optional and unknown is left out."""

    block_hashes: list[core.BlockHash]
    parent_block_hash: core.BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None
    cache_salt: str | None = None
    lora_name: str | None = None


class BlockRemoved(msgspec.Struct, tag=True, omit_defaults=True, gc=False):
    """`{"type": "BlockRemoved", ...}`; the names are all that says whose blocks they are."""

    block_hashes: list[core.BlockHash]
    medium: str | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, tag=True, gc=False):
    """`{"type": "AllBlocksCleared"}`."""


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`[ts, [events], dp_rank]`, an array still; `ts` in seconds since 1970."""

    ts: float
    events: list[WireEvent]
    attn_dp_rank: int


_ENCODER = msgspec.msgpack.Encoder()


def encode_batch(events: Sequence[core.EngineEvent], timestamp_s: float, dp_rank: int) -> bytes:
    """One payload. A chain of stores is one event with many hashes, and so is a run of removals."""
    joined: list[WireEvent] = []
    for event in events:
        match event:
            case core.BlockStored():
                _add_store(joined, event)
            case core.BlockRemoved():
                _add_removal(joined, event)
            case core.AllBlocksCleared():
                joined.append(AllBlocksCleared())
    return _ENCODER.encode(EventBatch(timestamp_s, joined, dp_rank))


def _add_store(joined: list[WireEvent], event: core.BlockStored) -> None:
    salt, adapter = split_scope(event.scope)
    last = joined[-1] if joined else None
    if (
        isinstance(last, BlockStored)
        and last.block_hashes[-1] == event.parent
        and (last.medium, last.block_size) == (event.medium, event.block_size)
        and (last.cache_salt, last.lora_name) == (salt, adapter)
    ):
        last.block_hashes.extend(event.hashes)
        last.token_ids.extend(event.tokens.tolist())
        return
    joined.append(
        BlockStored(
            list(event.hashes),
            event.parent,
            event.tokens.tolist(),
            event.block_size,
            None,
            event.medium,
            salt,
            adapter,
        )
    )


def _add_removal(joined: list[WireEvent], event: core.BlockRemoved) -> None:
    last = joined[-1] if joined else None
    if isinstance(last, BlockRemoved) and last.medium == event.medium:
        last.block_hashes.extend(event.hashes)
    else:
        joined.append(BlockRemoved(list(event.hashes), event.medium))


def split_scope(scope: str) -> tuple[str | None, str | None]:
    """Salt and adapter of an event's scope, None for those it has not."""
    adapter, separator, salt = scope.removeprefix(_ADAPTER).partition("\0")
    if separator and scope.startswith(_ADAPTER):
        return salt or None, adapter
    return scope or None, None


def join_scope(salt: str, adapter: str) -> str:
    """The scope of an event whose blocks belong to a salt, an adapter or both."""
    return f"{_ADAPTER}{adapter}\0{salt}" if adapter else salt
