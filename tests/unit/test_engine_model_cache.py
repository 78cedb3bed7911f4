"""The block cache against its naive twin, and its laws after every step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kvcompass.engine_events import AllBlocksCleared, BlockHash, BlockRemoved, BlockStored
from kvcompass.engine_model import EvictionPolicy, TierEvents
from kvcompass.engine_model.block_cache import BlockCache
from kvcompass.engine_model.block_names import BlockNames
from kvcompass.engine_model.cache_events import DRAM, VRAM
from kvcompass.engine_model.eviction import VictimQueue
from kvcompass.engine_model.holding import Holding
from kvcompass.engine_model.run import Run
from kvcompass.engine_model.token_chain import TokenChain
from kvcompass.engine_model.workload_aware import MAX_WORKLOADS, ReuseRecord, WorkloadVictims
from tests.models.cache_naive import NaiveCache, NaiveHolding

PAGE = 2
CAPACITY = 12
TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=14)
WORKLOADS = st.sampled_from(("", "chat-1", "chat-2"))


def chain_of(tokens: list[int]) -> TokenChain:
    return TokenChain(np.array(tokens, dtype=np.int32), PAGE)


class CacheBesideItsTwin(RuleBasedStateMachine):
    """Equal to the twin after every step, and so is what a listener replays from the events."""

    @initialize(
        dram=st.sampled_from((0, 3, 8, 30)),
        policy=st.sampled_from(EvictionPolicy),
        names=st.sampled_from(BlockNames),
    )
    def start(self, dram: int, policy: EvictionPolicy, names: BlockNames) -> None:
        self.cache = BlockCache(PAGE, CAPACITY, dram, policy, names=names)
        self.hashed = names is BlockNames.HASHED
        self.twin = NaiveCache(PAGE, CAPACITY, dram, policy.value)
        self.now_us = 0
        self.running: list[tuple[list[int], TokenChain, Holding, NaiveHolding]] = []
        self.names: dict[int, tuple[int, ...]] = {}
        """Prefix by block name, of all that were ever stored."""
        self.held: dict[str, set[int]] = {VRAM: set(), DRAM: set()}
        assert self.cache.take_events() == [AllBlocksCleared()]

    @rule(tokens=TOKENS, answer=st.integers(0, 4), workload=WORKLOADS)
    def open(self, tokens: list[int], answer: int, workload: str) -> None:
        chain = chain_of(tokens)
        total = -(-(len(tokens) + answer) // PAGE)
        limit = (len(tokens) - 1) // PAGE
        assert self.cache.match(chain, limit) == self.twin.match(tokens, limit)
        mine = self.cache.open(chain, limit, total, self.now_us, workload)
        theirs = self.twin.open(tokens, limit, total, self.now_us, workload)
        assert (mine is None) == (theirs is None)
        if mine is not None and theirs is not None:
            self.running.append((tokens, chain, mine, theirs))
            assert mine.loaded == theirs.loaded
            assert mine.blocks == len(theirs.prefixes)
            # The last token is always left to compute.
            assert mine.blocks * PAGE < len(tokens)

    @rule(seconds=st.sampled_from((1, 5, 100, 3_000)))
    def wait(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000

    @rule(policy=st.sampled_from(EvictionPolicy))
    def change_the_policy(self, policy: EvictionPolicy) -> None:
        self.cache.set_policy(policy)
        self.twin.set_policy(policy.value)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99))
    def store(self, which: int) -> None:
        tokens, chain, mine, theirs = self.running[which % len(self.running)]
        self.cache.store(mine, chain, self.now_us)
        self.twin.store(theirs, tokens, self.now_us)

    @precondition(lambda self: self.running)
    @rule(which=st.integers(0, 99))
    def close(self, which: int) -> None:
        _, _, mine, theirs = self.running.pop(which % len(self.running))
        self.cache.close(mine)
        self.twin.close(theirs)

    @rule(tokens=TOKENS, answer=st.integers(0, 4), workload=WORKLOADS)
    def serve(self, tokens: list[int], answer: int, workload: str) -> None:
        """A whole request, so that caches fill up."""
        before = len(self.running)
        self.open(tokens, answer, workload)
        if len(self.running) > before:
            self.store(len(self.running) - 1)
            self.close(len(self.running) - 1)

    @precondition(lambda self: not self.running)
    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.twin.clear()

    def heard(self, event: BlockStored, held: set[int]) -> None:
        """A chain of blocks, each named for all tokens up to its end."""
        assert event.parent is None or event.parent in held
        assert isinstance(event.parent, int | None)
        prefix = () if event.parent is None else self.names[event.parent]
        pages = event.tokens.reshape(-1, PAGE).tolist()
        for name, page in zip(event.hashes, pages, strict=True):
            assert isinstance(name, int)
            assert name not in held
            prefix += tuple(page)
            assert self.names.setdefault(name, prefix) == prefix
            if self.hashed:
                assert chain_of(list(prefix)).hashes[-1] == name
            held.add(name)

    @invariant()
    def the_twins_agree_and_nothing_is_lost(self) -> None:
        removed: dict[str, list[tuple[int, ...]]] = {VRAM: [], DRAM: []}
        for event in self.cache.take_events():
            match event:
                case AllBlocksCleared():
                    self.held = {VRAM: set(), DRAM: set()}
                case BlockStored(medium=str(medium)):
                    self.heard(event, self.held[medium])
                case BlockRemoved(hashes=names, medium=str(medium)):
                    for name in names:
                        assert isinstance(name, int)
                        removed[medium].append(self.names[name])
                        self.held[medium].remove(name)
        for medium, tier in ((VRAM, self.twin.vram), (DRAM, self.twin.dram)):
            evicted = self.twin.removed[medium]
            # A step of this machine evicts at most once a tier.
            assert removed[medium] == evicted[::-1]
            evicted.clear()
            held = {self.names[name] for name in self.held[medium]}
            assert held == tier
            assert all(prefix[:-PAGE] in held or len(prefix) == PAGE for prefix in held)
        assert self.twin.locked() <= self.twin.vram
        reserved = sum(holding.room for _, _, holding, _ in self.running)
        assert self.cache.free_blocks + self.cache.resident_blocks + reserved == CAPACITY
        assert self.cache.free_blocks == self.twin.free
        assert self.cache.resident_blocks == len(self.twin.vram)
        assert self.cache.locked_blocks == len(self.twin.locked())
        assert self.cache.dram_blocks == len(self.twin.dram) <= self.cache.dram_capacity_blocks
        assert self.cache.dram_capacity_blocks - self.cache.dram_blocks == self.twin.dram_free


TestCache = CacheBesideItsTwin.TestCase
TestCache.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


@given(tokens=st.lists(st.integers(0, 2**31 - 1), max_size=40), cut=st.integers(0, 40))
def test_a_chain_does_not_depend_on_how_it_grew(tokens: list[int], cut: int) -> None:
    grown = chain_of(tokens[:cut])
    grown.extend(np.array(tokens[cut:], dtype=np.int32))
    whole = chain_of(tokens)
    assert grown.hashes == whole.hashes
    assert len(grown) == len(tokens)
    assert len(whole.hashes) == len(tokens) // PAGE


def test_eviction_names_parents_before_children() -> None:
    cache = BlockCache(PAGE, 4)
    chain = chain_of([1, 2, 3, 4, 5, 6])
    holding = cache.open(chain, 2, 3, 0)
    assert holding is not None
    cache.store(holding, chain, 0)
    cache.close(holding)
    cache.take_events()
    assert cache.open(chain_of([7, 8, 9, 10, 11, 12, 13, 14]), 3, 4, 0) is not None
    (removed,) = [event.hashes for event in cache.take_events() if isinstance(event, BlockRemoved)]
    assert removed == chain.hashes


def test_repeated_use_does_not_grow_the_book_of_leaves() -> None:
    cache = BlockCache(PAGE, 8)
    chain = chain_of([1, 2, 3, 4])
    for _ in range(500):
        holding = cache.open(chain, 1, 2, 0)
        assert holding is not None
        cache.store(holding, chain, 0)
        cache.close(holding)
    assert isinstance(cache._vram_victims, VictimQueue)
    assert len(cache._vram_victims) <= 2 * cache.resident_blocks + 64


def test_least_recently_used_leaves_go_first() -> None:
    cache = BlockCache(PAGE, 3)
    order = [[1, 1], [2, 2], [3, 3]]
    chains = [chain_of([*pair, 0]) for pair in order]
    for chain in [*chains, chains[0]]:
        holding = cache.open(chain, 1, 1, 0)
        assert holding is not None
        cache.store(holding, chain, 0)
        cache.close(holding)
    cache.take_events()
    assert cache.open(chain_of([4, 4, 5, 5]), 1, 2, 0) is not None
    (removed,) = [event.hashes for event in cache.take_events() if isinstance(event, BlockRemoved)]
    assert removed == (chains[2].hashes[0], chains[1].hashes[0])


def serve(cache: BlockCache, tokens: list[int], workload: str = "") -> Holding:
    """Prefill a prompt to its last page, and let go."""
    chain = chain_of([*tokens, 0])
    holding = cache.open(chain, len(tokens) // PAGE, len(tokens) // PAGE, 0, workload)
    assert holding is not None
    cache.store(holding, chain, 0)
    cache.close(holding)
    return holding


def told(cache: BlockCache) -> list[tuple[str, int, str | None]]:
    """Events as (what, first token of the last page, medium)."""
    said: list[tuple[str, int, str | None]] = []
    for event in cache.take_events():
        match event:
            case BlockStored():
                for name, token in zip(event.hashes, event.tokens[::PAGE].tolist(), strict=True):
                    PAGES[name] = token
                    said.append(("+", token, event.medium))
            case BlockRemoved():
                said += [("-", PAGES[name], event.medium) for name in event.hashes]
    return said


PAGES: dict[BlockHash, int] = {}
A, B = [1, 1, 2, 2], [3, 3, 4, 4]


@pytest.mark.parametrize("tier_events", TierEvents)
def test_what_each_version_tells_of_its_tiers(tier_events: TierEvents) -> None:
    """The steps of a recorded HiRadixCache: store, demote, load back, compute again, leave both tiers."""
    cache = BlockCache(PAGE, 3, 4, tier_events=tier_events)
    steps = []
    serve(cache, A)
    steps.append(told(cache))
    serve(cache, B)
    steps.append(told(cache))
    assert serve(cache, A).loaded == 1
    steps.append(told(cache))
    # Only one page may be matched, so the second is computed again.
    chain = chain_of(B)
    holding = cache.open(chain, 1, 2, 0)
    assert holding is not None
    cache.store(holding, chain, 0)
    cache.close(holding)
    steps.append(told(cache))
    serve(cache, [5, 5, 6, 6, 7, 7])
    steps.append(told(cache))

    tiers = tier_events is not TierEvents.UNTOLD
    new = tier_events is TierEvents.ALL
    expected = [
        [("+", 1, VRAM), ("+", 2, VRAM)] + tiers * [("+", 1, DRAM), ("+", 2, DRAM)],
        tiers * [("-", 2, VRAM)]
        + [("+", 3, VRAM), ("+", 4, VRAM)]
        + tiers * [("+", 3, DRAM), ("+", 4, DRAM)],
        tiers * [("-", 4, VRAM), ("+", 2, VRAM)],
        tiers * [("-", 2, VRAM)] + new * [("+", 4, VRAM)],
        tiers * [("-", 3, VRAM), ("-", 4, VRAM), ("-", 1, VRAM)]
        + [("+", 5, VRAM), ("+", 6, VRAM), ("+", 7, VRAM)]
        + [("-", 4, DRAM if tiers else VRAM), ("-", 1, DRAM if tiers else VRAM)]
        + [("-", 2, DRAM if tiers else VRAM)]
        + tiers * [("+", 5, DRAM), ("+", 6, DRAM), ("+", 7, DRAM)],
    ]
    for step, want in zip(steps, expected, strict=True):
        assert sorted(step) == sorted(want)


def test_a_full_dram_tier_keeps_what_vram_also_has() -> None:
    cache = BlockCache(PAGE, 4, 1)
    serve(cache, A)
    cache.take_events()
    serve(cache, B)
    assert [event for event in told(cache) if event[2] == DRAM] == []


def test_policies_choose_different_victims() -> None:
    """X was stored first and is used most, Y was used longest ago, Z only once."""
    x, y, z = [1, 1], [2, 2], [3, 3]
    victims = {}
    for policy in (EvictionPolicy.LRU, EvictionPolicy.LFU, EvictionPolicy.FIFO):
        cache = BlockCache(PAGE, 3, policy=policy)
        for tokens in (x, y, y, x, x, z):
            serve(cache, tokens)
        told(cache)
        serve(cache, [4, 4])
        victims[policy] = next(page for what, page, _ in told(cache) if what == "-")
    assert victims == {EvictionPolicy.LRU: 2, EvictionPolicy.LFU: 3, EvictionPolicy.FIFO: 1}


def test_the_workload_aware_policy_lets_go_what_its_category_seldom_reuses() -> None:
    cache = BlockCache(PAGE, 2, policy=EvictionPolicy.WA)

    def use(tokens: list[int], at_s: int, workload: str) -> None:
        chain = chain_of([*tokens, 0])
        holding = cache.open(chain, 1, 1, at_s * 1_000_000, workload)
        assert holding is not None
        cache.store(holding, chain, at_s * 1_000_000)
        cache.close(holding)

    for second in range(8):
        use([1, 1], 2 * second, "chat")
        use([10 + second] * 2, 2 * second + 1, "batch")
        told(cache)
    # The chat is the older one by now; LRU would let it go.
    use([1, 1], 17, "chat")
    use([20, 20], 18, "batch")
    told(cache)
    use([30, 30], 19, "batch")
    assert ("-", 20, VRAM) in told(cache)


def test_blocks_keep_their_category_when_the_policy_becomes_workload_aware() -> None:
    cache = BlockCache(PAGE, 2)
    serve(cache, [1, 1], workload="chat")
    cache.set_policy(EvictionPolicy.WA)
    serve(cache, [2, 2])
    told(cache)
    # The nameless one is known not to be reused so far; of the chat nothing is known.
    serve(cache, [3, 3])
    assert ("-", 2, VRAM) in told(cache)


def test_repeated_use_does_not_grow_the_books_of_categories() -> None:
    victims = WorkloadVictims(lambda block: True, ReuseRecord())
    for use in range(500):
        victims.offer(run_of(1, f"chat-{use % 3}", use), 8)
    assert sum(len(queue) for queue in victims._queues.values()) <= 2 * 8 + 64


def run_of(serial: int, workload: str, used_us: int) -> Run:
    """A run of one block."""
    return Run(None, b"", (serial,), [], serial, used_us, used_us, workload)


def test_a_long_life_in_the_cache_favours_what_is_used_seldom_but_surely() -> None:
    """Of two blocks used just now, one will be used within seconds or not at all, the other some day."""

    record = ReuseRecord()
    for workload, uses, reuses, gap_s in (("soon", 1_000, 300, 1), ("surely", 1_000, 900, 1_000)):
        record.note_use(workload, uses)
        for _ in range(reuses):
            record.note_reuse(run_of(0, workload, 0), gap_s * 1_000_000)
    queue = WorkloadVictims(lambda block: True, record)
    now_s = 10**6

    def victim() -> str:
        for serial, workload in ((1, "soon"), (2, "surely")):
            queue.offer(run_of(serial, workload, now_s * 1_000_000), 10)
        first, _ = queue.pop(now_s * 1_000_000), queue.pop(now_s * 1_000_000)
        assert first is not None
        return first.workload

    assert victim() == "surely"
    queue.learn([(run_of(3, "soon", 0), 6)], now_s * 1_000_000)
    assert victim() == "soon"


def test_categories_are_bounded() -> None:
    record = ReuseRecord()
    for number in range(2 * MAX_WORKLOADS):
        record.note_use(record.category(str(number)), 1)
    assert len(record._uses) == MAX_WORKLOADS + 1
