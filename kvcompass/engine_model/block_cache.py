"""The prefix cache of one engine: a tree of blocks, least recently used leaf out first."""

import heapq
from dataclasses import dataclass, field

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model.token_chain import TokenChain

MEDIUM = "GPU"


@dataclass(slots=True, eq=False)
class CacheBlock:
    """A resident page."""

    name: int
    parent: "CacheBlock | None"
    serial: int
    last_use: int
    children: int = 0
    locks: int = 0


@dataclass(slots=True, eq=False)
class Holding:
    """What a running request occupies: a locked path of the tree and room that only it may fill."""

    path: list[CacheBlock] = field(default_factory=list)
    """Locked blocks from the root on."""
    room: int = 0
    """Blocks reserved and not yet in the tree."""


class BlockCache:
    """Blocks of one medium. Every block is free, in the tree, or reserved by one holding (invariant).

    A block in the tree may leave only when no running request holds it and it has no children, so what is
    resident is always closed under "parent of". Events queue until `take_events`.
    """

    def __init__(self, page_size: int, capacity_blocks: int) -> None:
        assert page_size > 0
        assert capacity_blocks > 0
        self.page_size = page_size
        self.capacity_blocks = capacity_blocks
        self.free_blocks = capacity_blocks
        self.locked_blocks = 0
        """Blocks of the tree that running requests hold."""
        self._blocks: dict[int, CacheBlock] = {}
        self._leaves: list[tuple[int, int, CacheBlock]] = []
        self._clock = 0
        self._serial = 0
        self._events: list[EngineEvent] = [AllBlocksCleared()]

    @property
    def resident_blocks(self) -> int:
        """Blocks in the tree."""
        return len(self._blocks)

    def match(self, chain: TokenChain, limit: int) -> int:
        """How many leading blocks are resident, at most `limit`. Changes nothing."""
        count = 0
        for name in chain.hashes[:limit]:
            if name not in self._blocks:
                break
            count += 1
        return count

    def open(self, chain: TokenChain, limit: int, total: int) -> Holding | None:
        """Lock the matched prefix of at most `limit` blocks and reserve room up to `total` blocks.

        Evicts as needed. None when even evicting everything unlocked would not make room; nothing changes
        then.
        """
        matched = self.match(chain, limit)
        path = [self._blocks[name] for name in chain.hashes[:matched]]
        room = total - matched
        reclaimable = self.resident_blocks - self.locked_blocks - sum(1 for b in path if b.locks == 0)
        if room > self.free_blocks + reclaimable:
            return None
        self._clock += 1
        for block in path:
            self._lock(block)
        self._evict(room - self.free_blocks)
        self.free_blocks -= room
        return Holding(path, room)

    def store(self, holding: Holding, chain: TokenChain) -> None:
        """Put the full pages of `chain` that are not yet in the holding's path into the tree.

        New blocks take the holding's room; a page that another request stored meanwhile gives room back.
        """
        self._clock += 1
        for block in holding.path:
            block.last_use = self._clock
        for index in range(len(holding.path), len(chain.hashes)):
            name = chain.hashes[index]
            parent = holding.path[-1] if holding.path else None
            holding.room -= 1
            assert holding.room >= 0, "a request stored more than it reserved"
            if name in self._blocks:
                block = self._blocks[name]
                self.free_blocks += 1
            else:
                block = self._add(name, parent, chain, index)
            self._lock(block)
            holding.path.append(block)

    def close(self, holding: Holding) -> None:
        """Unlock the path and give back the unused room. The holding is empty afterwards."""
        for block in holding.path:
            block.locks -= 1
            if block.locks == 0:
                self.locked_blocks -= 1
        if holding.path:
            self._offer(holding.path[-1])
        self.free_blocks += holding.room
        holding.path = []
        holding.room = 0

    def clear(self) -> None:
        """Drop every block. Only while nothing is held."""
        assert self.locked_blocks == 0
        self.free_blocks += len(self._blocks)
        self._blocks.clear()
        self._leaves.clear()
        self._events.append(AllBlocksCleared())

    def take_events(self) -> list[EngineEvent]:
        """Events since the last call, in order. The first ever is AllBlocksCleared, as engines say."""
        events, self._events = self._events, []
        return events

    def _add(self, name: int, parent: CacheBlock | None, chain: TokenChain, index: int) -> CacheBlock:
        self._serial += 1
        block = CacheBlock(name, parent, self._serial, self._clock)
        self._blocks[name] = block
        if parent is not None:
            parent.children += 1
        self._events.append(
            BlockStored(
                hashes=(name,),
                parent=parent.name if parent else None,
                tokens=chain.page(index),
                block_size=self.page_size,
                medium=MEDIUM,
            )
        )
        return block

    def _lock(self, block: CacheBlock) -> None:
        block.last_use = self._clock
        if block.locks == 0:
            self.locked_blocks += 1
        block.locks += 1

    def _offer(self, block: CacheBlock) -> None:
        """Note a block that may be evicted. Entries that no longer hold are skipped when they come up."""
        if block.children or block.locks:
            return
        heapq.heappush(self._leaves, (block.last_use, block.serial, block))
        if len(self._leaves) > 2 * len(self._blocks) + 64:
            self._leaves = [entry for entry in self._leaves if self._evictable(entry)]
            heapq.heapify(self._leaves)

    def _evictable(self, entry: tuple[int, int, CacheBlock]) -> bool:
        last_use, _, block = entry
        return (
            last_use == block.last_use
            and not block.children
            and not block.locks
            and self._blocks.get(block.name) is block
        )

    def _evict(self, count: int) -> None:
        """Remove `count` leaves. Events name parents before children, as SGLang does."""
        removed: list[int] = []
        while len(removed) < count:
            entry = heapq.heappop(self._leaves)
            if not self._evictable(entry):
                continue
            block = entry[2]
            del self._blocks[block.name]
            removed.append(block.name)
            if block.parent is not None:
                block.parent.children -= 1
                self._offer(block.parent)
        self.free_blocks += len(removed)
        self._events.extend(BlockRemoved(hashes=(name,), medium=MEDIUM) for name in reversed(removed))
