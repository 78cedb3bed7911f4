"""The prefix cache of one engine: a tree of blocks in VRAM, and under it a tier in DRAM that keeps copies."""

from collections.abc import Callable

from kvcompass.engine_events import EngineEvent
from kvcompass.engine_model.block_names import BlockNames
from kvcompass.engine_model.cache_events import DRAM, VRAM, CacheEvents, TierEvents
from kvcompass.engine_model.eviction import ORDERS, EvictionPolicy, VictimQueue, Victims
from kvcompass.engine_model.holding import Holding
from kvcompass.engine_model.prefix_tree import PrefixTree
from kvcompass.engine_model.run import Run
from kvcompass.engine_model.token_chain import TokenChain
from kvcompass.engine_model.workload_aware import ReuseRecord, WorkloadVictims


def _may_leave_vram(run: Run) -> bool:
    return run.vram > 0 and not run.vram_children and not run.locks


def _may_leave_dram(run: Run) -> bool:
    return run.dram > run.vram and not run.dram_children


class BlockCache:
    """Two tiers over one tree. A block of VRAM is free, in the tree, or reserved by one holding (invariant).

    What VRAM holds is closed under "parent of", and so is what DRAM holds: a block leaves a tier only when
    none of its children is there; VRAM only when no running request holds it, DRAM only when VRAM does not
    have it. Blocks are copied to DRAM as soon as they are stored (SGLang's default, write-through), parents
    first; where DRAM is full of blocks that VRAM also has, the copy waits for the next time the prefix is
    stored. Copies take no model time.

    Blocks that were always used together are one `Run`, so what is done costs by runs and not by blocks.
    """

    def __init__(
        self,
        page_size: int,
        capacity_blocks: int,
        dram_capacity_blocks: int = 0,
        policy: EvictionPolicy = EvictionPolicy.LRU,
        tier_events: TierEvents = TierEvents.ALL,
        names: BlockNames = BlockNames.HASHED,
    ) -> None:
        assert page_size > 0
        assert capacity_blocks > 0
        assert dram_capacity_blocks >= 0
        self.capacity_blocks = capacity_blocks
        self.free_blocks = capacity_blocks
        self.resident_blocks = 0
        """Blocks of the tree that VRAM holds."""
        self.locked_blocks = 0
        """Of these, blocks that running requests hold."""
        self.dram_capacity_blocks = dram_capacity_blocks
        self.dram_blocks = 0
        """Blocks that DRAM holds."""
        self._page_bytes = 4 * page_size
        self._tree = PrefixTree(page_size, names)
        self._events = CacheEvents(page_size, tier_events)
        self._clock = 0
        self.set_policy(policy)

    @property
    def silent(self) -> bool:
        """Whether there are no events to take."""
        return not self._events.queued

    def take_events(self) -> list[EngineEvent]:
        """Events since the last call, in order. The first ever is AllBlocksCleared, as engines say."""
        return self._events.take()

    def set_policy(self, policy: EvictionPolicy) -> None:
        """Evict by another policy from now on. WA learns from here on. O(n log n) in the runs held."""
        self._record = ReuseRecord() if policy is EvictionPolicy.WA else None
        self._vram_victims = self._victims(policy, _may_leave_vram)
        self._dram_victims = self._victims(policy, _may_leave_dram)
        for run in self._tree:
            run.workload = self._category(run.workload)
            self._offer(run)

    def match(self, chain: TokenChain, limit: int) -> int:
        """How many leading blocks some tier holds, at most `limit`. Changes nothing."""
        path, _, shared = self._tree.match(self._tree.root(chain.seed), chain.data, 0, limit)
        return sum([len(run.names) for run in path]) + shared

    def open(
        self, chain: TokenChain, limit: int, total: int, at_us: int, workload: str = ""
    ) -> Holding | None:
        """Lock the matched prefix of at most `limit` blocks and reserve room up to `total` blocks.

        Matched blocks that only DRAM holds are loaded back. Evicts as needed. None when even evicting
        everything unlocked would not make room; nothing changes then.
        """
        last = self._tree.root(chain.seed)
        path, partial, shared = self._tree.match(last, chain.data, 0, limit)
        warm = 0
        for run in path:
            warm += run.vram
        if partial is not None:
            warm += min(partial.vram, shared)
        needed = total - warm
        if needed > self.free_blocks:
            evictable = self.resident_blocks - self.locked_blocks - sum([r.vram for r in path if not r.locks])
            if partial is not None and not partial.locks:
                evictable -= min(partial.vram, shared)
            if needed > self.free_blocks + evictable:
                return None
        if partial is not None:
            path.append(self._split(partial, shared))
        self._clock += 1
        category = self._category(workload)
        matched = 0
        for last in path:
            self._reuse(last, at_us, category)
            matched += len(last.names)
        if needed > self.free_blocks:
            self._evict(needed - self.free_blocks, at_us)
        if warm < matched:
            for run in path:
                self._admit(run, chain.scope, told=self._events.tiers_told)
        self.free_blocks -= needed
        return Holding(last, matched, total - matched, matched - warm, workload)

    def store(self, holding: Holding, chain: TokenChain, at_us: int, pages: int | None = None) -> None:
        """Put the full pages of `chain`, or the first `pages`, that the holding's path lacks into the tree.

        New blocks take the holding's room; a page that another request stored meanwhile gives room back.
        """
        self._clock = clock = self._clock + 1
        run = holding.last
        while (parent := run.parent) is not None:
            run.last_use = clock
            run.used_us = at_us
            run = parent
        if pages is None:
            pages = chain.pages
        if holding.blocks < pages:
            holding.room -= pages - holding.blocks
            assert holding.room >= 0, "a request stored more than it reserved"
            self._extend(holding, chain, at_us, pages)
        if self.dram_capacity_blocks:
            last = holding.last
            if last.dram < len(last.names):
                self._copy(last, chain.scope, at_us)

    def close(self, holding: Holding) -> None:
        """Unlock the path and give back the unused room. The holding is empty afterwards."""
        run = holding.last
        while (parent := run.parent) is not None:
            run.locks -= 1
            if not run.locks:
                self.locked_blocks -= len(run.names)
            run = parent
        self._vram_victims.offer(holding.last, self.resident_blocks)
        self.free_blocks += holding.room
        holding.last = run
        holding.blocks = holding.room = 0

    def clear(self) -> None:
        """Drop every block of both tiers. Only while nothing is held."""
        assert self.locked_blocks == 0
        self.free_blocks += self.resident_blocks
        self.resident_blocks = 0
        self.dram_blocks = 0
        self._tree.clear()
        self._vram_victims.clear()
        self._dram_victims.clear()
        self._events.cleared()

    def _category(self, workload: str) -> str:
        return self._record.category(workload) if self._record else workload

    def _victims(self, policy: EvictionPolicy, may_go: Callable[[Run], bool]) -> Victims:
        if self._record is not None:
            return WorkloadVictims(may_go, self._record)
        return VictimQueue(ORDERS[policy], may_go)

    def _offer(self, run: Run) -> None:
        self._vram_victims.offer(run, self.resident_blocks)
        if run.dram:
            self._dram_victims.offer(run, self.dram_blocks)

    def _split(self, run: Run, blocks: int) -> Run:
        """See Run.split. What is left of the run has another place in the order."""
        upper = run.split(blocks, self._page_bytes)
        self._offer(run)
        return upper

    def _extend(self, holding: Holding, chain: TokenChain, at_us: int, pages: int) -> None:
        """Lengthen a holding's path to `pages`: by what is in the tree, then by a new run."""
        category = self._category(holding.workload)
        last = holding.last if holding.blocks else self._tree.planted(chain.seed)
        at, end = holding.blocks - chain.first, pages - chain.first
        if last.children:
            path, partial, shared = self._tree.match(last, chain.data, at, end)
            if partial is not None:
                path.append(self._split(partial, shared))
            for last in path:
                self._reuse(last, at_us, category)
                self.free_blocks += last.vram
                self._admit(last, chain.scope, told=self._events.recomputed_told)
                at += len(last.names)
        if at < end:
            data = chain.data[at * self._page_bytes : end * self._page_bytes]
            last = self._tree.create(last, data)
            last.last_use, last.used_us, last.workload = self._clock, at_us, category
            last.locks = 1
            self.locked_blocks += end - at
            if self._record:
                self._record.note_use(category, end - at)
            self._admit(last, chain.scope, told=True)
        holding.last, holding.blocks = last, pages

    def _admit(self, run: Run, scope: str, *, told: bool) -> None:
        """Put what VRAM lacks of a run there. The caller accounts for the room."""
        blocks, held = len(run.names), run.vram
        if held == blocks:
            return
        if not held and run.parent is not None:
            run.parent.vram_children += 1
        run.vram = blocks
        self.resident_blocks += blocks - held
        if told:
            self._events.stored(run, held, blocks, VRAM, scope)

    def _reuse(self, run: Run, at_us: int, workload: str) -> None:
        """Lock a run for one more request."""
        if self._record:
            self._record.note_reuse(run, at_us)
            self._record.note_use(workload, len(run.names))
        run.hits += 1
        run.last_use = self._clock
        run.used_us = at_us
        run.workload = workload
        if not run.locks:
            self.locked_blocks += len(run.names)
        run.locks += 1

    def _copy(self, last: Run, scope: str, at_us: int) -> None:
        """Write what DRAM lacks of a path, evicting there as needed, parents first, as far as it fits."""
        path: list[Run] = []
        missing = 0
        while (parent := last.parent) is not None and (lacking := len(last.names) - last.dram):
            path.append(last)
            missing += lacking
            last = parent
        room = self.dram_capacity_blocks - self.dram_blocks
        if missing > room:
            self._evict_dram(missing - room, at_us)
            room = self.dram_capacity_blocks - self.dram_blocks
        for run in reversed(path):
            if not room:
                break
            held, blocks = run.dram, len(run.names)
            if blocks > held + room:
                blocks = held + room
            if not held and run.parent is not None:
                run.parent.dram_children += 1
            run.dram = blocks
            room -= blocks - held
            self.dram_blocks += blocks - held
            if self._events.tiers_told:
                self._events.stored(run, held, blocks, DRAM, scope)

    def _evict(self, count: int, at_us: int) -> None:
        """Remove `count` blocks from VRAM. Those that DRAM holds too are demoted, the others are gone."""
        self.free_blocks += count
        self.resident_blocks -= count
        eviction: list[tuple[Run, int]] = []
        removed: list[tuple[int, ...]] = []
        while count:
            run = self._vram_victims.pop(at_us)
            assert run is not None, "the caller has made sure that enough blocks may go"
            assert run.parent is not None
            before = run.vram
            kept = run.vram = max(0, before - count)
            count -= before - kept
            eviction.append((run, before - kept))
            untold = kept if self._events.tiers_told else max(kept, run.dram)
            removed.append(run.names[untold:before])
            self._tree.truncate(run)
            if kept:
                self._vram_victims.offer(run, self.resident_blocks)
            else:
                run.parent.vram_children -= 1
                if not run.parent.vram_children:
                    self._vram_victims.offer(run.parent, self.resident_blocks)
            if run.dram:
                self._dram_victims.offer(run, self.dram_blocks)
        self._vram_victims.learn(eviction, at_us)
        self._events.removed(removed, VRAM)

    def _evict_dram(self, count: int, at_us: int) -> None:
        """Remove up to `count` blocks from DRAM; they are gone, for VRAM does not have them."""
        eviction: list[tuple[Run, int]] = []
        removed: list[tuple[int, ...]] = []
        while count > 0 and (run := self._dram_victims.pop(at_us)) is not None:
            assert run.parent is not None
            before = run.dram
            kept = run.dram = max(run.vram, before - count)
            count -= before - kept
            self.dram_blocks -= before - kept
            eviction.append((run, before - kept))
            removed.append(run.names[kept:before])
            self._tree.truncate(run)
            if kept:
                self._dram_victims.offer(run, self.dram_blocks)
            else:
                run.parent.dram_children -= 1
                self._dram_victims.offer(run.parent, self.dram_blocks)
        self._dram_victims.learn(eviction, at_us)
        self._events.removed(removed, DRAM if self._events.tiers_told else VRAM)
