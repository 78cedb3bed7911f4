"""An engine's own names of its blocks, which are opaque, and the names that routers give to the same."""

from kvcompass.engine_events import BlockHash, BlockRemoved, BlockStored
from simulator.rivals.chunk_names import ROOT, chunk_names


class EngineBlocks:
    """What one engine holds: a name (`chunk_names`) and the tiers of each of its blocks."""

    def __init__(self) -> None:
        self._names: dict[BlockHash, int] = {}
        self._in_dram: set[BlockHash] = set()
        self._in_vram: set[BlockHash] = set()

    def stored(self, event: BlockStored, in_dram: bool) -> list[int]:
        """Return the names of a chain of blocks. Some 10 us when it is new."""
        known = self._names
        (self._in_dram if in_dram else self._in_vram).update(event.hashes)
        try:
            return [known[block] for block in event.hashes]
        except KeyError:
            parent = ROOT if event.parent is None else known[event.parent]
            names = chunk_names(event.tokens, event.block_size, parent)
            known.update(zip(event.hashes, names, strict=True))
            return names

    def removed(self, event: BlockRemoved, in_dram: bool) -> list[int]:
        """Return the names of blocks that leave a tier; those in no other are forgotten."""
        names = [self._names[block] for block in event.hashes]
        this, other = (self._in_dram, self._in_vram) if in_dram else (self._in_vram, self._in_dram)
        this.difference_update(event.hashes)
        for block in event.hashes:
            if block not in other:
                del self._names[block]
        return names
