"""Events of one block each, which is all that SGLang before 0.5.20 sends."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kvcompass.engine_events import BlockRemoved, BlockStored, EngineEvent


def single_blocks(events: Iterable[EngineEvent]) -> Iterator[EngineEvent]:
    """The same events, cut into single blocks, in order."""
    for event in events:
        match event:
            case BlockStored() if len(event.hashes) > 1:
                yield from _stores(event)
            case BlockRemoved() if len(event.hashes) > 1:
                yield from (replace(event, hashes=(name,)) for name in event.hashes)
            case _:
                yield event


def _stores(event: BlockStored) -> Iterator[BlockStored]:
    parents = (event.parent, *event.hashes)
    pages = event.tokens.reshape(-1, event.block_size)
    for parent, name, page in zip(parents, event.hashes, pages, strict=False):
        yield replace(event, hashes=(name,), parent=parent, tokens=page)
