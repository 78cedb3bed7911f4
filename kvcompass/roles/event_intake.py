"""Engine events -> the block tree: what is this worker's and in a tier of the index; the rest is counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
from kvcompass.roles.block_tree import BlockTree
from kvcompass.roles.foreign_blocks import ForeignBlocks
from kvcompass.tier import Tier

_TIER_OF_MEDIUM: Final[Mapping[str | None, Tier]] = {
    None: Tier.VRAM,
    "GPU": Tier.VRAM,
    "CPU_PINNED": Tier.DRAM,
    "CPU": Tier.DRAM,
}
"""SGLang says CPU_PINNED and vLLM CPU; both have media behind these, which are no tier of the index."""
_UNTOLD_TIERS: Final = dict.fromkeys(_TIER_OF_MEDIUM, Tier.DRAM)
"""Of an engine that does not say what moves to its host tier: what it holds may be there."""
_SPELLED_COPY: Final = "CPU"
"""vLLM's host tier, whose copies are told as stores only with `self_describing_kv_events`."""
_TOKEN: Final = np.dtype("<i4")


@dataclass(slots=True)
class EventCounters:
    """Events by what became of them. Monotonic."""

    stored_blocks: int = 0
    removed_blocks: int = 0
    clears: int = 0
    unknown_media: int = 0
    """Events about a medium that is no tier of the index (disk, remote store); ignored."""
    foreign_scopes: int = 0
    """Stores of blocks under a salt, an adapter or extra keys, or below such blocks; ignored."""
    coarse_copies: int = 0
    """Copies on the host that a request finds only together, among which a length may end; ignored."""
    malformed: int = 0
    """Stores whose tokens are not hashes x block size; ignored."""


@dataclass(frozen=True, slots=True)
class BlockSizeMismatch:
    """A block has another size than those of this engine have."""

    reported: int
    known: int


class EventIntake:
    """Feeds one worker's tree.

    Edges send requests without salt or adapter, one sharing group's to a worker (`docs/decisions/0520`): so
    blocks of any scope are other people's.
    """

    def __init__(self, tree: BlockTree, block_size: int, quantum: int, *, foreign_max: int) -> None:
        """`block_size`, `quantum`: tokens; `foreign_max`: names of other scopes' blocks kept."""
        self._tree = tree
        self.block_size = block_size
        """Tokens a block of the engine."""
        self.quantum = quantum
        """Of which every registered length is a multiple, tokens."""
        self.shared = False
        """Other scopes' blocks have been in the cache since it was last cleared."""
        self._tiers = _TIER_OF_MEDIUM
        self._foreign = ForeignBlocks(foreign_max)
        self.counters = EventCounters()

    def take(self, events: Sequence[EngineNews]) -> BlockSizeMismatch | None:
        """Take in a batch. It stops at an event whose blocks are of another size, and says so."""
        for event in events:
            if isinstance(event, BlockStored):
                if event.block_size != self.block_size:
                    return BlockSizeMismatch(event.block_size, self.block_size)
                self._store(event)
            elif isinstance(event, BlockRemoved):
                self._remove(event)
            elif isinstance(event, BlocksCopied):
                self._copy(event)
            elif isinstance(event, AllBlocksCleared):
                self.counters.clears += 1
                self.clear()
            elif isinstance(event, EventsLost) and event.removals:
                self._tree.clear()
        return None

    def use_block_size(self, block_size: int) -> None:
        """The engine's blocks have so many tokens. Nothing is held."""
        self.block_size = block_size
        self._tree.use_block_size(block_size)

    def use_tiers(self, *, told: bool) -> None:
        """Whether the engine says in which tier a block is; if not, all counts as DRAM. Nothing is held."""
        self._tiers = _TIER_OF_MEDIUM if told else _UNTOLD_TIERS

    def clear(self) -> None:
        """Nothing is resident, and names may be given anew."""
        self._tree.clear()
        self._foreign.clear()
        self.shared = False

    def _store(self, event: BlockStored) -> None:
        if event.scope or (self._foreign and event.parent in self._foreign):
            self.counters.foreign_scopes += 1
            self.shared = True
            self._foreign.note(event.hashes)
            return
        tier = self._tier(event.medium)
        if tier is None:
            return
        if not event.hashes or len(event.tokens) != len(event.hashes) * self.block_size:
            self.counters.malformed += 1
            return
        if event.medium == _SPELLED_COPY and not self._is_found(event):
            return
        data = event.tokens.astype(_TOKEN, copy=False).tobytes()
        self._tree.store(event.hashes, event.parent, data, tier)
        self.counters.stored_blocks += len(event.hashes)

    def _is_found(self, event: BlockStored) -> bool:
        """Whether whoever asks for a prefix that ends in this copy on the host finds it there.

        vLLM tells such copies without the scope of their blocks, under the same names: so they are copies of
        blocks that are known. It finds the blocks that it told at once together, or none of them.
        """
        if self._foreign and any(name in self._foreign and name not in self._tree for name in event.hashes):
            self.counters.foreign_scopes += 1
            return False
        unknown = sum(name not in self._tree for name in event.hashes)
        if unknown:
            self._tree.counters.unknown_copies += unknown
        elif self.quantum % len(event.tokens):
            self.counters.coarse_copies += 1
        else:
            return True
        return False

    def _copy(self, event: BlocksCopied) -> None:
        own = () if event.scope else self._own(event.hashes)
        if len(own) < len(event.hashes):
            self.counters.foreign_scopes += 1
        tier = self._tier(event.medium)
        if tier is not None and own:
            self._tree.copy(own, tier)
            self.counters.stored_blocks += len(own)

    def _remove(self, event: BlockRemoved) -> None:
        tier = self._tier(event.medium)
        if tier is not None:
            own = self._own(event.hashes)
            self._tree.remove(own, tier)
            self.counters.removed_blocks += len(own)

    def _own(self, hashes: tuple[BlockHash, ...]) -> tuple[BlockHash, ...]:
        """Those that are not known to be another scope's."""
        if not self._foreign:
            return hashes
        return tuple([name for name in hashes if name not in self._foreign or name in self._tree])

    def _tier(self, medium: str | None) -> Tier | None:
        tier = self._tiers.get(medium)
        if tier is None:
            self.counters.unknown_media += 1
        return tier
