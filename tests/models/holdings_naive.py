"""What a worker holds, worked out from scratch after every event with dictionaries."""

import hashlib
from collections.abc import Iterable

import numpy as np

from kvcompass.engine_events import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlocksCopied,
    BlockStored,
    EngineNews,
    EventsLost,
)

MEDIA = {None: "vram", "GPU": "vram", "CPU": "dram", "CPU_PINNED": "dram"}


class NaiveBlock:
    def __init__(self, parent: BlockHash | None, tokens: tuple[int, ...]) -> None:
        self.parent = parent
        self.tokens = tokens
        self.copies = {"vram": 0, "dram": 0}


class NaiveHoldings:
    def __init__(self, namespace: bytes, block_size: int, lengths: Iterable[int], *, counted: bool) -> None:
        self.namespace = namespace
        self.block_size = block_size
        self.lengths = set(lengths)
        self.counted = counted
        self.blocks: dict[BlockHash, NaiveBlock] = {}
        self.foreign: set[BlockHash] = set()
        """Names of all blocks that were told under another scope, or below one that was."""

    def apply(self, event: EngineNews) -> None:
        if isinstance(event, AllBlocksCleared):
            self.blocks.clear()
            self.foreign.clear()
        elif isinstance(event, EventsLost):
            if event.removals:
                self.blocks.clear()
        elif isinstance(event, BlockStored) and (event.scope or event.parent in self.foreign):
            self.foreign.update(event.hashes)
        elif event.medium not in MEDIA:
            return
        elif isinstance(event, BlockStored):
            tokens = event.tokens.tolist()
            if len(tokens) != len(event.hashes) * self.block_size:
                return
            if event.medium == "CPU" and not self.is_found(event):
                return
            parents = (event.parent, *event.hashes)
            for i, (block_hash, parent) in enumerate(zip(event.hashes, parents, strict=False)):
                piece = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
                self.store(block_hash, parent, piece, MEDIA[event.medium])
        elif isinstance(event, BlocksCopied):
            for block_hash in () if event.scope else event.hashes:
                if block_hash in self.blocks:
                    self.copied(self.blocks[block_hash], MEDIA[event.medium])
        elif isinstance(event, BlockRemoved):
            for block_hash in event.hashes:
                self.remove(block_hash, MEDIA[event.medium])

    def is_found(self, event: BlockStored) -> bool:
        known = all(name in self.blocks for name in event.hashes)
        together = len(event.tokens) or 1
        return known and all(length % together == 0 for length in self.lengths)

    def store(
        self, block_hash: BlockHash, parent: BlockHash | None, tokens: tuple[int, ...], where: str
    ) -> None:
        block = self.blocks.get(block_hash)
        if block is None:
            if block_hash == parent:
                return
            block = self.blocks[block_hash] = NaiveBlock(parent, tokens)
        if block.tokens != tokens:
            return
        if parent not in (None, block.parent):
            if block.parent is not None or block in (self.chain(parent) or ()):
                return
            block.parent = parent
        self.copied(block, where)

    def copied(self, block: NaiveBlock, where: str) -> None:
        block.copies[where] = block.copies[where] + 1 if self.counted else 1

    def remove(self, block_hash: BlockHash, where: str) -> None:
        block = self.blocks.get(block_hash)
        if block is None:
            return
        block.copies[where] = max(0, block.copies[where] - 1)
        if not any(block.copies.values()):
            del self.blocks[block_hash]

    def held(self) -> dict[int, int]:
        """Key -> best tier, for every prefix of a registered length whose blocks are all there."""
        held: dict[int, int] = {}
        for block_hash in self.blocks:
            chain = self.chain(block_hash)
            if chain is None or sum(len(block.tokens) for block in chain) not in self.lengths:
                continue
            tokens = np.array([token for block in chain for token in block.tokens], dtype="<i4")
            digest = hashlib.sha256(self.namespace + tokens.tobytes()).digest()
            key = int.from_bytes(digest[:8], "big") >> 1
            tier = 1 if all(block.copies["vram"] for block in chain) else 2
            held[key] = min(tier, held.get(key, tier))
        return held

    def chain(self, block_hash: BlockHash) -> list[NaiveBlock] | None:
        """The blocks from the root to one, or None when one of them is missing."""
        chain: list[NaiveBlock] = []
        at: BlockHash | None = block_hash
        while at is not None:
            block = self.blocks.get(at)
            if block is None or block in chain:
                return None
            chain.insert(0, block)
            at = block.parent
        return chain
