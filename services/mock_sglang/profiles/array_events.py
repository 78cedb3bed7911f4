"""Cache events in array form, byte for byte as SGLang up to 0.5.18 sends them."""

from collections.abc import Sequence

import msgspec

from kvcompass import engine_events as core
from services.mock_sglang.profiles.single_blocks import single_blocks


class BlockStored(msgspec.Struct, frozen=True, array_like=True, tag=True, omit_defaults=True, gc=False):
    """`["BlockStored", [hash], parent, [tokens], block_size, lora_id, medium]`."""

    block_hashes: tuple[core.BlockHash, ...]
    parent_block_hash: core.BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None = None


class BlockRemoved(msgspec.Struct, frozen=True, array_like=True, tag=True, omit_defaults=True, gc=False):
    """`["BlockRemoved", [hash], medium]`."""

    block_hashes: tuple[core.BlockHash, ...]
    medium: str | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, array_like=True, tag=True, omit_defaults=True, gc=False):
    """`["AllBlocksCleared"]`."""


WireEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`[ts, [events], dp_rank]`; `ts` in seconds since 1970."""

    ts: float
    events: list[WireEvent]
    attn_dp_rank: int


_ENCODER = msgspec.msgpack.Encoder()


def encode_batch(events: Sequence[core.EngineEvent], timestamp_s: float, dp_rank: int) -> bytes:
    """One payload, which says nothing of salts and adapters. About 1 us an event."""
    return _ENCODER.encode(
        EventBatch(timestamp_s, [_wire(event) for event in single_blocks(events)], dp_rank)
    )


def _wire(event: core.EngineEvent) -> WireEvent:
    match event:
        case core.BlockStored():
            return BlockStored(
                event.hashes, event.parent, event.tokens.tolist(), event.block_size, None, event.medium
            )
        case core.BlockRemoved():
            return BlockRemoved(event.hashes, event.medium)
        case core.AllBlocksCleared():
            return AllBlocksCleared()
