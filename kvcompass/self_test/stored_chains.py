"""What an engine stored while it was listened to: chains of blocks with their tokens, for a short time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kvcompass.engine_events import BlockHash, BlockStored, EngineNews

BLOCKS_MOST: Final = 16_384
"""Kept of one listening; the oldest go. Some seconds of a busy engine, 10 MB."""
TOKENS_MOST: Final = 1 << 21
"""In them: 8 MB."""
_STEPS_MOST: Final = 1 << 16
"""From block to block in one look: some 30 ms of an event loop."""


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

    def __init__(self, blocks_most: int = BLOCKS_MOST, tokens_most: int = TOKENS_MOST) -> None:
        self._blocks: dict[tuple[str, BlockHash], _Block] = {}
        """By scope and name: engines give equal tokens of two scopes one name."""
        self._blocks_most = blocks_most
        self._tokens_most = tokens_most
        self._tokens = 0
        """In all blocks."""
        self.overflowed = False
        """Something was too much to keep or to look at, so that what is missed may have been told."""

    @property
    def blocks(self) -> int:
        """Those kept."""
        return len(self._blocks)

    def hear(self, events: Iterable[EngineNews]) -> None:
        """Take in one batch. What was removed meanwhile was stored all the same."""
        for event in events:
            if isinstance(event, BlockStored):
                self._store(event)

    def chains(self, tokens_most: int) -> list[StoredChain]:
        """Return every chain up to a block that none follows, without those of more tokens than so many.

        The newest come first; where walking them all takes too long, the oldest are left out.
        """
        parents = {(block.scope, block.parent) for block in self._blocks.values()}
        ends = [name for name in self._blocks if name not in parents]
        found: list[StoredChain] = []
        steps = 0
        for end in reversed(ends):
            if steps >= _STEPS_MOST:
                self.overflowed = True
                break
            chain, walked = self._chain(end, tokens_most)
            steps += walked
            if chain is not None:
                found.append(chain)
        return found

    def _store(self, event: BlockStored) -> None:
        size, parent = event.block_size, event.parent
        if len(event.tokens) != size * len(event.hashes):
            return
        for i, name in enumerate(event.hashes):
            key = (event.scope, name)
            if key not in self._blocks:
                tokens = event.tokens[i * size : (i + 1) * size].copy()  # the event's other blocks may go
                self._tokens += size
                self._blocks[key] = _Block(parent, tokens, size, event.scope)
            parent = name
            while len(self._blocks) > self._blocks_most or self._tokens > self._tokens_most:
                self._tokens -= self._blocks.pop(next(iter(self._blocks))).block_size
                self.overflowed = True

    def _chain(self, end: tuple[str, BlockHash], tokens_most: int) -> tuple[StoredChain | None, int]:
        """Return the chain that ends there, None where it is too long, and the steps that took."""
        scope, name = end
        parts: list[NDArray[np.int32]] = []
        length = 0
        while True:
            block = self._blocks[scope, name]
            parts.append(block.tokens)
            length += len(block.tokens)
            if length > tokens_most:
                return None, len(parts)
            if block.parent is None or (scope, block.parent) not in self._blocks:
                tokens = np.concatenate(parts[::-1])
                return StoredChain(tokens, block.parent is None, block.block_size, scope), len(parts)
            name = block.parent
