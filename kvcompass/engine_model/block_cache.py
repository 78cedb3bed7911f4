"""The prefix cache of one engine: a tree of blocks in VRAM, and under it a tier in DRAM that keeps copies."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from kvcompass.engine_events import AllBlocksCleared, BlockRemoved, BlockStored, EngineEvent
from kvcompass.engine_model.block import CacheBlock
from kvcompass.engine_model.eviction import ORDERS, EvictionPolicy, VictimQueue, Victims
from kvcompass.engine_model.token_chain import TokenChain
from kvcompass.engine_model.workload_aware import ReuseRecord, WorkloadVictims

VRAM = "GPU"
"""SGLang's name of the medium."""
DRAM = "CPU_PINNED"
"""SGLang's name of the medium."""


class TierEvents(Enum):
    """What an engine with a DRAM tier says about it; SGLang learned it in two steps."""

    UNTOLD = "0.5.10"
    """Nothing: a block is stored when it is first computed and removed (from `GPU`) when no tier has it."""
    NOT_RECOMPUTED = "0.5.11"
    """Every change, but not that a block which only DRAM held was computed once more. Up to 0.5.20."""
    ALL = "0.5.23"
    """Every change."""


@dataclass(slots=True, eq=False)
class Holding:
    """What a running request occupies: a locked path of the tree and room that only it may fill."""

    path: list[CacheBlock] = field(default_factory=list)
    """Locked blocks from the root on."""
    room: int = 0
    """Blocks of VRAM reserved and not yet in the tree."""
    loaded: int = 0
    """Blocks of the path that were loaded back from DRAM for this request."""
    workload: str = ""


def _may_leave_vram(block: CacheBlock) -> bool:
    return block.in_vram and not block.vram_children and not block.locks


def _may_leave_dram(block: CacheBlock) -> bool:
    return block.in_dram and not block.in_vram and not block.dram_children


class BlockCache:
    """Two tiers over one tree. A block of VRAM is free, in the tree, or reserved by one holding (invariant).

    What VRAM holds is closed under "parent of", and so is what DRAM holds: a block leaves a tier only when
    none of its children is there; VRAM only when no running request holds it, DRAM only when VRAM does not
    have it. Blocks are copied to DRAM as soon as they are stored (SGLang's default, write-through), parents
    first; where DRAM is full of blocks that VRAM also has, the copy waits for the next time the prefix is
    stored. Copies take no model time. Events queue until `take_events`.
    """

    def __init__(
        self,
        page_size: int,
        capacity_blocks: int,
        dram_capacity_blocks: int = 0,
        policy: EvictionPolicy = EvictionPolicy.LRU,
        tier_events: TierEvents = TierEvents.ALL,
    ) -> None:
        assert page_size > 0
        assert capacity_blocks > 0
        assert dram_capacity_blocks >= 0
        self.page_size = page_size
        self.capacity_blocks = capacity_blocks
        self.free_blocks = capacity_blocks
        self.resident_blocks = 0
        """Blocks of the tree that VRAM holds."""
        self.locked_blocks = 0
        """Of these, blocks that running requests hold."""
        self.dram_capacity_blocks = dram_capacity_blocks
        self.dram_blocks = 0
        """Blocks that DRAM holds."""
        self._tier_events = tier_events
        self._blocks: dict[int, CacheBlock] = {}
        self._clock = 0
        self._serial = 0
        self._events: list[EngineEvent] = [AllBlocksCleared()]
        self.set_policy(policy)

    def set_policy(self, policy: EvictionPolicy) -> None:
        """Evict by another policy from now on. WA learns from here on. O(n log n) in the blocks held."""
        self._record = ReuseRecord() if policy is EvictionPolicy.WA else None
        self._vram_victims = self._victims(policy, _may_leave_vram)
        self._dram_victims = self._victims(policy, _may_leave_dram)
        for block in self._blocks.values():
            block.workload = self._category(block.workload)
            self._vram_victims.offer(block, self.resident_blocks)
            self._dram_victims.offer(block, self.dram_blocks)

    def match(self, chain: TokenChain, limit: int) -> int:
        """How many leading blocks some tier holds, at most `limit`. Changes nothing."""
        count = 0
        for name in chain.hashes[:limit]:
            if name not in self._blocks:
                break
            count += 1
        return count

    def open(
        self, chain: TokenChain, limit: int, total: int, at_us: int, workload: str = ""
    ) -> Holding | None:
        """Lock the matched prefix of at most `limit` blocks and reserve room up to `total` blocks.

        Matched blocks that only DRAM holds are loaded back. Evicts as needed. None when even evicting
        everything unlocked would not make room; nothing changes then.
        """
        matched = self.match(chain, limit)
        path = [self._blocks[name] for name in chain.hashes[:matched]]
        cold = matched
        while cold and not path[cold - 1].in_vram:
            cold -= 1
        needed = total - cold
        reclaimable = self.resident_blocks - self.locked_blocks - sum(1 for b in path[:cold] if b.locks == 0)
        if needed > self.free_blocks + reclaimable:
            return None
        self._clock += 1
        category = self._category(workload)
        for block in path:
            self._reuse(block, at_us, category)
        self._evict(needed - self.free_blocks, at_us)
        for index in range(cold, matched):
            self._admit(path[index], chain, index, told=self._tier_events is not TierEvents.UNTOLD)
        self.free_blocks -= needed
        return Holding(path, total - matched, matched - cold, workload)

    def store(self, holding: Holding, chain: TokenChain, at_us: int) -> None:
        """Put the full pages of `chain` that are not yet in the holding's path into the tree.

        New blocks take the holding's room; a page that another request stored meanwhile gives room back.
        """
        self._clock += 1
        category = self._category(holding.workload)
        path = holding.path
        for block in path:
            block.last_use = self._clock
            block.used_us = at_us
        for index in range(len(path), len(chain.hashes)):
            holding.room -= 1
            assert holding.room >= 0, "a request stored more than it reserved"
            known = self._blocks.get(chain.hashes[index])
            if known is None:
                block = self._create(chain, index, path[-1] if path else None, at_us, category)
                self._admit(block, chain, index, told=True)
            else:
                block = known
                self._reuse(block, at_us, category)
                if block.in_vram:
                    self.free_blocks += 1
                else:
                    self._admit(block, chain, index, told=self._tier_events is TierEvents.ALL)
            path.append(block)
        if self.dram_capacity_blocks:
            self._copy(path, chain, at_us)

    def close(self, holding: Holding) -> None:
        """Unlock the path and give back the unused room. The holding is empty afterwards."""
        for block in holding.path:
            block.locks -= 1
            if block.locks == 0:
                self.locked_blocks -= 1
        if holding.path:
            self._vram_victims.offer(holding.path[-1], self.resident_blocks)
        self.free_blocks += holding.room
        holding.path = []
        holding.room = 0

    def clear(self) -> None:
        """Drop every block of both tiers. Only while nothing is held."""
        assert self.locked_blocks == 0
        self.free_blocks += self.resident_blocks
        self.resident_blocks = 0
        self.dram_blocks = 0
        self._blocks.clear()
        self._vram_victims.clear()
        self._dram_victims.clear()
        self._events.append(AllBlocksCleared())

    def take_events(self) -> list[EngineEvent]:
        """Events since the last call, in order. The first ever is AllBlocksCleared, as engines say."""
        events, self._events = self._events, []
        return events

    def _category(self, workload: str) -> str:
        return self._record.category(workload) if self._record else workload

    def _victims(self, policy: EvictionPolicy, may_go: Callable[[CacheBlock], bool]) -> Victims:
        if self._record is not None:
            return WorkloadVictims(may_go, self._record)
        return VictimQueue(ORDERS[policy], may_go)

    def _admit(self, block: CacheBlock, chain: TokenChain, index: int, *, told: bool) -> None:
        """Put a block into VRAM. The caller accounts for the room."""
        block.in_vram = True
        self.resident_blocks += 1
        if block.parent is not None:
            block.parent.vram_children += 1
        if told:
            self._say_stored(block, chain, index, VRAM)

    def _copy(self, path: list[CacheBlock], chain: TokenChain, at_us: int) -> None:
        """Write what DRAM lacks of a path, evicting there as needed, parents first, as far as it fits."""
        start = len(path)
        while start and not path[start - 1].in_dram:
            start -= 1
        self._evict_dram(len(path) - start - (self.dram_capacity_blocks - self.dram_blocks), at_us)
        end = min(len(path), start + self.dram_capacity_blocks - self.dram_blocks)
        for index in range(start, end):
            block = path[index]
            block.in_dram = True
            if block.parent is not None:
                block.parent.dram_children += 1
            if self._tier_events is not TierEvents.UNTOLD:
                self._say_stored(block, chain, index, DRAM)
        self.dram_blocks += end - start

    def _create(
        self, chain: TokenChain, index: int, parent: CacheBlock | None, at_us: int, workload: str
    ) -> CacheBlock:
        """A locked block of the tree that no tier holds yet."""
        self._serial += 1
        name = chain.hashes[index]
        block = CacheBlock(name, parent, index, self._serial, self._clock, at_us, workload, locks=1)
        self._blocks[name] = block
        self.locked_blocks += 1
        if self._record:
            self._record.note_use(workload)
        return block

    def _reuse(self, block: CacheBlock, at_us: int, workload: str) -> None:
        """Lock a block for one more request."""
        if self._record:
            self._record.note_reuse(block, at_us)
            self._record.note_use(workload)
        block.hits += 1
        block.last_use = self._clock
        block.used_us = at_us
        block.workload = workload
        if block.locks == 0:
            self.locked_blocks += 1
        block.locks += 1

    def _evict(self, count: int, at_us: int) -> None:
        """Remove `count` leaves from VRAM. Those that DRAM holds too are demoted, the others are gone."""
        removed: list[int] = []
        told = self._tier_events is not TierEvents.UNTOLD
        for _ in range(count):
            block = self._vram_victims.pop(at_us)
            assert block is not None, "the caller has made sure that enough blocks may go"
            block.in_vram = False
            self.resident_blocks -= 1
            if block.in_dram:
                self._dram_victims.offer(block, self.dram_blocks)
            else:
                del self._blocks[block.name]
            if told or not block.in_dram:
                removed.append(block.name)
            parent = block.parent
            if parent is not None:
                parent.vram_children -= 1
                self._vram_victims.offer(parent, self.resident_blocks)
        self.free_blocks += max(count, 0)
        self._say_removed(removed, VRAM)

    def _evict_dram(self, count: int, at_us: int) -> None:
        """Remove up to `count` leaves from DRAM; they are gone, for VRAM does not have them."""
        removed: list[int] = []
        while len(removed) < count and (block := self._dram_victims.pop(at_us)) is not None:
            block.in_dram = False
            del self._blocks[block.name]
            removed.append(block.name)
            if block.parent is not None:
                block.parent.dram_children -= 1
                self._dram_victims.offer(block.parent, self.dram_blocks)
        self.dram_blocks -= len(removed)
        self._say_removed(removed, VRAM if self._tier_events is TierEvents.UNTOLD else DRAM)

    def _say_stored(self, block: CacheBlock, chain: TokenChain, index: int, medium: str) -> None:
        self._events.append(
            BlockStored(
                hashes=(block.name,),
                parent=block.parent.name if block.parent else None,
                tokens=chain.page(index),
                block_size=self.page_size,
                medium=medium,
                scope=chain.scope,
            )
        )

    def _say_removed(self, names: list[int], medium: str) -> None:
        """One eviction's removals: parents before children, as SGLang does."""
        self._events.extend(BlockRemoved(hashes=(name,), medium=medium) for name in reversed(names))
