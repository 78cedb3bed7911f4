"""What an engine stored while it was listened to: chains of blocks with their tokens, for a short time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_events import BlockHash, BlockStored, EngineNews

BLOCKS_MOST: Final = 16_384
"""Kept of one listening; the oldest go. Some seconds of a busy engine, 10 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredChain:
    """Blocks that follow one another."""

    tokens: NDArray[np.int32]
    """int32[blocks * block_size]."""
    rooted: bool
    """It starts at the first token of a prompt; else what precedes it was stored earlier."""
    block_size: int
    scope: str
    """Salt or adapter, as `BlockStored.scope`."""


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    parent: BlockHash | None
    tokens: NDArray[np.int32]
    block_size: int
    scope: str


class StoredChains:
    """Hears events and puts the stored blocks together. A block that is told again is the same block."""

    def __init__(self, blocks_most: int = BLOCKS_MOST) -> None:
        self._blocks: dict[tuple[str, BlockHash], _Block] = {}
        """By scope and name: engines give equal tokens of two scopes one name."""
        self._most = blocks_most
        self.forgotten = 0
        """Blocks that were too many. Monotonic."""

    def hear(self, events: Iterable[EngineNews]) -> None:
        """Take in one batch. What was removed meanwhile was stored all the same."""
        for event in events:
            if isinstance(event, BlockStored):
                self._store(event)

    def chains(self, tokens_most: int) -> list[StoredChain]:
        """Return every chain up to a block that none follows, without those of more tokens than so many."""
        parents = {(block.scope, block.parent) for block in self._blocks.values()}
        ends = [name for name in self._blocks if name not in parents]
        return [chain for end in ends if (chain := self._chain(end, tokens_most)) is not None]

    def _store(self, event: BlockStored) -> None:
        size, parent = event.block_size, event.parent
        if len(event.tokens) != size * len(event.hashes):
            return
        for i, name in enumerate(event.hashes):
            key = (event.scope, name)
            if key not in self._blocks:
                tokens = event.tokens[i * size : (i + 1) * size]
                self._blocks[key] = _Block(parent, tokens, size, event.scope)
            parent = name
        while len(self._blocks) > self._most:
            self._blocks.pop(next(iter(self._blocks)))
            self.forgotten += 1

    def _chain(self, end: tuple[str, BlockHash], tokens_most: int) -> StoredChain | None:
        scope, name = end
        parts: list[NDArray[np.int32]] = []
        length = 0
        while True:
            block = self._blocks[scope, name]
            parts.append(block.tokens)
            length += len(block.tokens)
            if length > tokens_most:
                return None
            if block.parent is None or (scope, block.parent) not in self._blocks:
                tokens = np.concatenate(parts[::-1])
                return StoredChain(tokens, block.parent is None, block.block_size, scope)
            name = block.parent
