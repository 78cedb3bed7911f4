"""How versions name the blocks of salted requests. The engine model gives each scope names of its own."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kvcompass.engine_events import AllBlocksCleared, BlockHash, BlockRemoved, BlockStored, EngineEvent
from services.mock_sglang.profiles.single_blocks import single_blocks

_NAME_BYTES = 8


class NamesOfTheirOwn:
    """From 0.5.20 on: as the model names them."""

    def told(self, events: Sequence[EngineEvent]) -> list[EngineEvent]:
        """See EventReport."""
        return list(events)


@dataclass(slots=True)
class _Salted:
    digest: bytes
    """SHA-256 of the unsalted chain up to and including this block."""
    media: set[str | None] = field(default_factory=set)


class SharedNames:
    """Before 0.5.20: the names that the same tokens have without a salt, and not a word of the salt.

    So blocks of several scopes share a name, which is stored and removed once for each.
    """

    def __init__(self) -> None:
        self._salted: dict[BlockHash, _Salted] = {}

    def told(self, events: Sequence[EngineEvent]) -> list[EngineEvent]:
        """See EventReport. One block an event, as those versions send them."""
        return [self._renamed(event) for event in single_blocks(events)]

    def _renamed(self, event: EngineEvent) -> EngineEvent:
        match event:
            case BlockStored() if event.scope:
                return self._stored(event)
            case BlockRemoved() if event.hashes[0] in self._salted:
                return self._removed(event)
            case AllBlocksCleared():
                self._salted.clear()
        return event

    def _stored(self, event: BlockStored) -> BlockStored:
        (name,) = event.hashes
        before = b"" if event.parent is None else self._salted[event.parent].digest
        block = self._salted.get(name)
        if block is None:
            digest = hashlib.sha256(before + event.tokens.astype("<i4").tobytes()).digest()
            block = self._salted[name] = _Salted(digest)
        block.media.add(event.medium)
        return replace(
            event,
            hashes=(_shared(block.digest),),
            parent=_shared(before) if before else None,
            scope="",
        )

    def _removed(self, event: BlockRemoved) -> BlockRemoved:
        (name,) = event.hashes
        block = self._salted[name]
        block.media.discard(event.medium)
        if not block.media:
            del self._salted[name]
        return replace(event, hashes=(_shared(block.digest),))


def _shared(digest: bytes) -> int:
    return int.from_bytes(digest[:_NAME_BYTES], "big", signed=True)
